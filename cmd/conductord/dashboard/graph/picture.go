package graph

// The size of boxes, in pixels.
const (
	boxWidth, boxHeight = 196, 46
	padding, titleSpace = 12, 30
)

// Box is a part in a picture.
type Box struct {
	*Part
	Point
	W, H   int
	Open   bool  // a frame around the boxes of its parts
	Around *Part // the part whose frame contains it; nil: none
}

// Line is an edge in a picture, through points: two for each layer that it touches.
type Line struct {
	From, To *Part
	Points   []Point
}

// Picture is the layout of a flow. Boxes are in a possible order of execution, a frame before its
// content.
type Picture struct {
	Boxes []Box
	Lines []Line
	Size  Point
}

// Draw lays out a flow with the named parts open; nil: the parts that fit.
func Draw(flow *Part, open []string) *Picture {
	flow.count()
	boxes := 0
	d := drawing{open: map[string]bool{}, boxes: &boxes, picture: &Picture{}}
	for _, name := range open {
		d.open[name] = true
	}
	if open == nil {
		d.open = flow.opened()
	}
	whole := d.parts(flow, nil, Point{padding, padding})
	d.picture.Size = Point{whole.X + 2*padding, whole.Y + 2*padding}
	return d.picture
}

type drawing struct {
	open    map[string]bool
	boxes   *int // in all pictures
	picture *Picture
}

// isOpen reports whether a part is a frame around its parts.
func (d *drawing) isOpen(p *Part) bool {
	return len(p.Parts) > 0 && *d.boxes < mostOpen && (d.open[p.Name] || p.visible())
}

// parts draws the parts of a part inside its frame, and returns the space that they take.
func (d *drawing) parts(p, frame *Part, corner Point) Point {
	p = p.folded()
	*d.boxes += len(p.Parts)
	sizes, inner := make([]Point, len(p.Parts)), make([]*Picture, len(p.Parts))
	for i, part := range p.Parts {
		sizes[i] = Point{boxWidth, boxHeight}
		if d.isOpen(part) {
			own := drawing{open: d.open, boxes: d.boxes, picture: &Picture{}}
			size := own.parts(part, part, Point{})
			inner[i] = own.picture
			sizes[i] = Point{size.X + 2*padding, size.Y + 2*padding + part.title()}
		}
	}
	at, lines, routes, whole := arrange(sizes, p.Edges)
	order, _ := sorted(len(p.Parts), p.Edges)
	for _, i := range order {
		part := p.Parts[i]
		box := Box{Part: part, Point: at[i].plus(corner), W: sizes[i].X, H: sizes[i].Y, Open: inner[i] != nil, Around: frame}
		d.picture.Boxes = append(d.picture.Boxes, box)
		if box.Open {
			d.picture.add(inner[i], box.plus(Point{padding, padding + part.title()}))
		}
	}
	for i, e := range lines {
		line := Line{From: p.Parts[e.From], To: p.Parts[e.To]}
		for _, point := range routes[i] {
			line.Points = append(line.Points, point.plus(corner))
		}
		d.picture.Lines = append(d.picture.Lines, line)
	}
	return whole
}

// title is the height of the title of a frame.
func (p *Part) title() int {
	if p.visible() {
		return 0
	}
	return titleSpace
}

func (p Point) plus(other Point) Point { return Point{p.X + other.X, p.Y + other.Y} }

// add puts a picture into another.
func (p *Picture) add(inner *Picture, corner Point) {
	for _, box := range inner.Boxes {
		box.Point = box.plus(corner)
		p.Boxes = append(p.Boxes, box)
	}
	for _, line := range inner.Lines {
		for i := range line.Points {
			line.Points[i] = line.Points[i].plus(corner)
		}
		p.Lines = append(p.Lines, line)
	}
}

// Waits returns the predecessors of each part in the picture. The first parts in a frame have the
// predecessors of the frame.
func (p *Picture) Waits() map[*Part][]*Part {
	waits := make(map[*Part][]*Part)
	for _, line := range p.Lines {
		waits[line.To] = append(waits[line.To], line.From)
	}
	for i := range p.Boxes { // frames come before their content
		if part := p.Boxes[i].Part; waits[part] == nil {
			waits[part] = waits[p.Boxes[i].Around]
		}
	}
	return waits
}

// Toggled returns the names of the open parts after one box is opened or folded. Opening a fold
// closes other folds; in a picture of many boxes, opening any part closes all others. The parts
// around it stay open.
func (p *Picture) Toggled(b *Box) []string {
	names, full := []string{}, len(p.Boxes)+len(b.Parts) > mostOpen
	for i := range p.Boxes {
		other := &p.Boxes[i]
		apart := b.X < other.X || b.X >= other.X+other.W || b.Y < other.Y || b.Y >= other.Y+other.H
		if other.Open && !other.visible() && other.Name != b.Name && (b.Open || !apart || other.Kind != Fold && !full) {
			names = append(names, other.Name)
		}
	}
	if !b.Open {
		names = append(names, b.Name)
	}
	return names
}
