package flow

// Turns are the instances of an each with a limit of parallel instances: see AtOnce. The engine
// releases the gates at which the instances start.
type Turns struct {
	Opening int // the number of the opening
	AtOnce  int
	// Elements are in the order of the list.
	Elements []Turn
}

// Turn is one instance: the gates before and after it, and its steps.
type Turn struct {
	Begin, End int
	Steps      Steps
}

// TurnPlace is the role of a gate in Turns.
type TurnPlace struct {
	Turns, Element int
	Begins         bool // else it is the gate after the instance
}

// Turns are the turns of the plan, outer ones before inner ones. The slice belongs to the plan: do
// not write to it.
func (p *Plan) Turns() []Turns { return p.turns }

// TurnAt returns the turn that starts or ends at a gate.
func (p *Plan) TurnAt(gate int) (TurnPlace, bool) {
	place, ok := p.turnAt[gate]
	return place, ok
}

// placedTurns are Turns by their vertices.
type placedTurns struct {
	opener   int32
	atOnce   int
	elements []span // from the gate before the instance to the gate after it
}

// numberTurns records the turns in the plan.
func (c *compiler) numberTurns(numbers []int32) {
	p := c.plan
	if len(c.turns) > 0 {
		p.turnAt = make(map[int]TurnPlace)
	}
	for i, placed := range c.turns {
		turns := Turns{Opening: int(numbers[placed.opener]), AtOnce: placed.atOnce, Elements: make([]Turn, len(placed.elements))}
		for element, s := range placed.elements {
			turn := Turn{Begin: int(numbers[s.from]), End: int(numbers[s.end-1]), Steps: stepsOf(s, numbers, p.Len())}
			turns.Elements[element] = turn
			p.turnAt[turn.Begin] = TurnPlace{Turns: i, Element: element, Begins: true}
			p.turnAt[turn.End] = TurnPlace{Turns: i, Element: element}
		}
		p.turns = append(p.turns, turns)
	}
}
