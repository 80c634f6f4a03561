package graph

import (
	"cmp"
	"slices"
)

// The layout follows Sugiyama, Tagawa and Toda: layers by longest path, a dummy cell in each layer that an edge passes,
// and sweeps of medians against crossings. The coordinates bring each cell close to its neighbours. All numbers are
// integers, so every machine draws the same picture.

const (
	gapX, gapY = 20, 34 // between boxes, and between layers
	passing    = 8      // width of an edge that passes through a layer
	sweeps     = 12
	unit       = 64 // coordinates per pixel, until the final rounding
)

// Point is a place in a picture, in pixels.
type Point struct{ X, Y int }

// cell is a box of the layout, or the place where an edge passes through a layer.
type cell struct {
	w      int
	dummy  bool
	x, pos int // its centre, in units; its position in the layer
	up     []*cell
	down   []*cell
}

// layout is the state of the layout of one part.
type layout struct {
	boxes  []*cell // of the parts
	layer  []int
	edges  []Edge
	chains [][]*cell // the places where each edge passes through layers
	layers [][]*cell
}

// arrange gives each box its upper left corner, and each edge its points: two for each layer, at
// the layer's upper and lower end. It removes redundant edges.
func arrange(sizes []Point, edges []Edge) (at []Point, lines []Edge, routes [][]Point, whole Point) {
	if len(edges) == 0 {
		at, whole = grid(sizes)
		return at, nil, nil, whole
	}
	l := &layout{edges: reduced(len(sizes), edges), layer: layers(len(sizes), edges)}
	l.cells(sizes)
	l.order()
	l.place()
	at, routes, whole = l.measured(sizes)
	return at, l.edges, routes, whole
}

// grid sets boxes without edges in rows.
func grid(sizes []Point) (at []Point, whole Point) {
	columns := 1
	for columns < 5 && columns*columns < len(sizes) {
		columns++
	}
	at, widths := make([]Point, len(sizes)), make([]int, columns)
	for i, size := range sizes {
		widths[i%columns] = max(widths[i%columns], size.X)
	}
	const gap = 14
	height := 0
	for i, size := range sizes {
		if i%columns == 0 {
			whole.X = 0
			if i > 0 {
				whole.Y, height = whole.Y+height+gap, 0
			}
		} else {
			whole.X += gap
		}
		at[i] = Point{whole.X, whole.Y}
		whole.X += widths[i%columns]
		height = max(height, size.Y)
	}
	whole = Point{gap * (min(columns, len(sizes)) - 1), whole.Y + height}
	for _, width := range widths {
		whole.X += width
	}
	return at, whole
}

// sorted returns a possible order of execution, by index where several orders are possible. It
// also returns the successors of each box, without edges that close a cycle.
func sorted(n int, edges []Edge) (order []int, behind [][]int) {
	missing, place := make([]int, n), make([]int, n)
	behind = make([][]int, n)
	for _, e := range edges {
		if e.From != e.To {
			behind[e.From] = append(behind[e.From], e.To)
			missing[e.To]++
		}
	}
	for stuck := false; len(order) < n; {
		before := len(order)
		for i := range n {
			if place[i] > 0 || missing[i] > 0 && !stuck {
				continue
			}
			order, stuck = append(order, i), false
			place[i] = len(order)
			for _, to := range behind[i] {
				missing[to]--
			}
		}
		stuck = len(order) == before
	}
	for i := range behind {
		behind[i] = slices.DeleteFunc(behind[i], func(to int) bool { return place[to] < place[i] })
		slices.SortFunc(behind[i], func(a, b int) int { return cmp.Compare(place[a], place[b]) })
		behind[i] = slices.Compact(behind[i])
	}
	return order, behind
}

// layers returns the layer of each box: one more than the highest layer among its predecessors. A
// box without predecessors is directly above its first successor.
func layers(n int, edges []Edge) []int {
	order, behind := sorted(n, edges)
	layer, first := make([]int, n), make([]bool, n)
	for i := range first {
		first[i] = true
	}
	for _, from := range order {
		for _, to := range behind[from] {
			layer[to], first[to] = max(layer[to], layer[from]+1), false
		}
	}
	for from := range behind {
		for i, to := range behind[from] {
			if up := layer[to] - 1; first[from] && (i == 0 || up < layer[from]) {
				layer[from] = up
			}
		}
	}
	return layer
}

// reduced removes the edges that follow from others.
func reduced(n int, edges []Edge) []Edge {
	order, behind := sorted(n, edges)
	reach := make([][]bool, n) // all successors of a box, direct and indirect
	var left []Edge
	for k := range order {
		from := order[len(order)-1-k]
		reach[from] = make([]bool, n)
		for _, to := range behind[from] { // the nearest first
			if reach[from][to] {
				continue
			}
			left = append(left, Edge{from, to})
			reach[from][to] = true
			for i, does := range reach[to] {
				reach[from][i] = reach[from][i] || does
			}
		}
	}
	slices.SortFunc(left, func(a, b Edge) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	return left
}

func (l *layout) cells(sizes []Point) {
	l.layers = make([][]*cell, slices.Max(l.layer)+1)
	put := func(layer int, c *cell) *cell {
		c.pos = len(l.layers[layer])
		l.layers[layer] = append(l.layers[layer], c)
		return c
	}
	for i, size := range sizes {
		l.boxes = append(l.boxes, put(l.layer[i], &cell{w: size.X}))
	}
	for _, e := range l.edges {
		var chain []*cell
		last := l.boxes[e.From]
		link := func(c *cell) { last.down, c.up, last = append(last.down, c), append(c.up, last), c }
		for layer := l.layer[e.From] + 1; layer < l.layer[e.To]; layer++ {
			chain = append(chain, put(layer, &cell{w: passing, dummy: true}))
			link(chain[len(chain)-1])
		}
		link(l.boxes[e.To])
		l.chains = append(l.chains, chain)
	}
}

// order moves the cells of each layer to the mean position of their neighbours, alternately above
// and below. It keeps the order with the fewest crossings.
func (l *layout) order() {
	positions := func() (all [][]*cell) {
		for _, layer := range l.layers {
			all = append(all, slices.Clone(layer))
		}
		return all
	}
	best, fewest := positions(), l.crossings()
	for sweep := 0; sweep < sweeps && fewest > 0; sweep++ {
		for i := range l.layers {
			layer, up := l.layers[i], sweep%2 == 0
			if !up {
				layer = l.layers[len(l.layers)-1-i]
			}
			wish := make(map[*cell]int, len(layer))
			for _, c := range layer {
				wish[c] = mean(c, up, c.pos*unit, func(c *cell) int { return c.pos * unit })
			}
			slices.SortStableFunc(layer, func(a, b *cell) int { return cmp.Compare(wish[a], wish[b]) })
			for pos, c := range layer {
				c.pos = pos
			}
		}
		if n := l.crossings(); n < fewest {
			best, fewest = positions(), n
		}
	}
	for i, layer := range best {
		copy(l.layers[i], layer)
		for pos, c := range layer {
			c.pos = pos
		}
	}
}

func mean(c *cell, up bool, none int, of func(*cell) int) int {
	neighbours := c.down
	if up {
		neighbours = c.up
	}
	if len(neighbours) == 0 {
		return none
	}
	sum := 0
	for _, other := range neighbours {
		sum += of(other)
	}
	return sum / len(neighbours)
}

func (l *layout) crossings() int {
	n := 0
	for _, layer := range l.layers {
		var ends []int // ends of the edges to the left, in order
		for _, c := range layer {
			for _, to := range c.down {
				for _, end := range ends {
					if end > to.pos {
						n++
					}
				}
			}
			for _, to := range c.down {
				ends = append(ends, to.pos)
			}
		}
	}
	return n
}

// place moves the cells of each layer as close to their neighbours, alternately above and below,
// as the order and the gaps allow.
func (l *layout) place() {
	for _, layer := range l.layers {
		settle(layer, func(*cell) int { return 0 })
	}
	for sweep := range 2*sweeps + 1 {
		for i := range l.layers {
			layer, up := l.layers[i], sweep%2 == 0
			if !up {
				layer = l.layers[len(l.layers)-1-i]
			}
			settle(layer, func(c *cell) int { return mean(c, up, c.x, func(c *cell) int { return c.x }) })
		}
	}
}

// settle moves the cells of a layer as close as possible to the wished coordinates, by the weighted
// sum of squares. Cells that would overlap form a block at their mean.
func settle(layer []*cell, wish func(*cell) int) {
	type block struct{ sum, weight, cells int }
	var blocks []block
	offset, offsets := 0, make([]int, len(layer))
	for i, c := range layer {
		if i > 0 {
			offset += unit * ((layer[i-1].w+c.w)/2 + gapX)
		}
		offsets[i] = offset
		weight := 1
		if c.dummy {
			weight = 4 // straightens long edges before it centres boxes
		}
		b := block{weight * (wish(c) - offset), weight, 1}
		for n := len(blocks); n > 0 && blocks[n-1].sum*b.weight > b.sum*blocks[n-1].weight; n-- {
			last := blocks[n-1]
			b = block{b.sum + last.sum, b.weight + last.weight, b.cells + last.cells}
			blocks = blocks[:n-1]
		}
		blocks = append(blocks, b)
	}
	i := 0
	for _, b := range blocks {
		for range b.cells {
			layer[i].x = b.sum/b.weight + offsets[i]
			i++
		}
	}
}

// measured converts the coordinates to pixels, from 0.
func (l *layout) measured(sizes []Point) (at []Point, routes [][]Point, whole Point) {
	left := l.layers[0][0].x
	for _, layer := range l.layers {
		left = min(left, layer[0].x-unit*((layer[0].w+1)/2))
	}
	x := func(c *cell) int { return (c.x - left) / unit }
	top, bottom := make([]int, len(l.layers)), make([]int, len(l.layers))
	for i, size := range sizes {
		bottom[l.layer[i]] = max(bottom[l.layer[i]], size.Y)
	}
	for i := range top {
		if i > 0 {
			top[i] = bottom[i-1] + gapY
		}
		bottom[i] += top[i]
	}
	whole.Y = bottom[len(bottom)-1]
	for i, size := range sizes {
		at = append(at, Point{x(l.boxes[i]) - size.X/2, top[l.layer[i]]})
		whole.X = max(whole.X, at[i].X+size.X)
	}
	for k, e := range l.edges {
		from, to := l.layer[e.From], l.layer[e.To]
		route := []Point{{x(l.boxes[e.From]), top[from] + sizes[e.From].Y}, {x(l.boxes[e.From]), bottom[from]}}
		for i, c := range l.chains[k] {
			route = append(route, Point{x(c), top[from+1+i]}, Point{x(c), bottom[from+1+i]})
			whole.X = max(whole.X, x(c)+passing)
		}
		end := Point{x(l.boxes[e.To]), top[to]}
		routes = append(routes, append(route, end, end))
	}
	return at, routes, whole
}
