package graph

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
)

const (
	// mostBoxes limits the boxes of one part, and mostLoose the boxes of a part without edges,
	// because users do not look at more boxes one by one. In a picture of mostOpen boxes, no more
	// parts are opened.
	mostBoxes, mostLoose, mostOpen = 48, 120, 160
	// alike is the minimum number of parts with the same predecessors and the same successors that are
	// grouped in one frame. mostAlike is the maximum number of such parts that are shown without being
	// opened.
	alike, mostAlike = 5, 16
)

// neighbours are the edges of each part, sorted, in both directions.
func (p *Part) neighbours() (before, behind [][]int) {
	before, behind = make([][]int, len(p.Parts)), make([][]int, len(p.Parts))
	for _, e := range p.Edges {
		if e.From != e.To {
			before[e.To], behind[e.From] = append(before[e.To], e.From), append(behind[e.From], e.To)
		}
	}
	for i := range before {
		slices.Sort(before[i])
		slices.Sort(behind[i])
		before[i], behind[i] = slices.Compact(before[i]), slices.Compact(behind[i])
	}
	return before, behind
}

// folded returns the part with fewer parts: it groups similar parts and, if there are still too
// many, the parts of consecutive layers.
func (p *Part) folded() *Part {
	before, behind := p.neighbours()
	if len(p.Edges) == 0 {
		return p.grouped(chunks(len(p.Parts)))
	}
	groups := make(map[string][]int)
	keys := make([]string, len(p.Parts))
	var key []byte
	for i := range p.Parts {
		key = binary.AppendUvarint(key[:0], uint64(len(before[i])))
		for _, other := range slices.Concat(before[i], behind[i]) {
			key = binary.AppendUvarint(key, uint64(other))
		}
		keys[i] = string(key)
		groups[keys[i]] = append(groups[keys[i]], i)
	}
	group := make([]int, len(p.Parts))
	for i := range p.Parts {
		if group[i] = i; len(groups[keys[i]]) >= alike {
			group[i] = groups[keys[i]][0]
		}
	}
	made := p.grouped(group)
	if len(made.Parts) <= mostBoxes {
		return made
	}
	return made.grouped(made.ranges())
}

// chunks cuts a list that is too long into ranges.
func chunks(n int) []int {
	size, group := 1, make([]int, n)
	if n > mostLoose {
		size = max(mostLoose, (n+mostBoxes-1)/mostBoxes)
	}
	for i := range group {
		group[i] = i / size
	}
	return group
}

// ranges cuts the layers of a part into ranges with about the same number of parts in each.
func (p *Part) ranges() []int {
	layer := layers(len(p.Parts), p.Edges)
	order := make([]int, len(p.Parts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(layer[i], layer[j]) })
	size := 2 * (len(order) + mostBoxes - 1) / mostBoxes
	group := make([]int, len(order))
	for begin := 0; begin < len(order); {
		end := begin
		for end < len(order) && (end-begin < size || layer[order[end]] == layer[order[end-1]]) {
			end++
		}
		for _, i := range order[begin:end] {
			group[i] = begin
		}
		begin = end
	}
	return group
}

// grouped replaces parts of the same group by one fold. A part that is alone in its group does not
// change.
func (p *Part) grouped(group []int) *Part {
	made := &Part{Name: p.Name, Kind: p.Kind, Only: p.Only, Atoms: p.Atoms, counts: p.counts}
	members, place := map[int][]int{}, map[int]int{}
	for i, g := range group {
		members[g] = append(members[g], i)
	}
	inner := make([]int, len(p.Parts)) // the position of a part in its fold
	for i, g := range group {
		if members[g][0] != i {
			continue
		}
		part := p.Parts[i]
		if len(members[g]) > 1 {
			part = p.fold(members[g], inner)
		}
		place[g] = len(made.Parts)
		made.Parts = append(made.Parts, part)
	}
	for _, e := range p.Edges {
		from, to := group[e.From], group[e.To]
		if from != to {
			made.Edges = append(made.Edges, Edge{place[from], place[to]})
		} else if e.From != e.To {
			fold := made.Parts[place[from]]
			fold.Edges = append(fold.Edges, Edge{inner[e.From], inner[e.To]})
		}
	}
	return made
}

// fold combines several parts into one.
func (p *Part) fold(members, inner []int) *Part {
	fold := &Part{Kind: Fold, Name: fmt.Sprintf("%s+%d", p.Parts[members[0]].Name, len(members)-1)}
	for i, member := range members {
		inner[member] = i
		fold.Parts = append(fold.Parts, p.Parts[member])
		fold.counts.add(p.Parts[member])
	}
	return fold
}

// visible reports whether a fold is shown although it was not opened by the user.
func (p *Part) visible() bool {
	return p.Kind == Fold && len(p.Edges) == 0 && len(p.Parts) <= mostAlike
}

// opened returns the names of the parts that are open by default: outer parts first, while there
// are few boxes.
func (p *Part) opened() map[string]bool {
	const few = 24
	open, boxes := map[string]bool{}, 0
	for level := []*Part{p}; len(level) > 0; {
		var next []*Part
		for _, part := range level {
			if boxes+len(part.Parts) > few && part != p {
				continue
			}
			open[part.Name] = true
			boxes += len(part.Parts)
			for _, inner := range part.Parts {
				if inner.Kind == Flow || inner.Kind == Each {
					next = append(next, inner)
				}
			}
		}
		level = next
	}
	return open
}
