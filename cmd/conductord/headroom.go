package main

// headroomBytes is how much more than its heap a daemon lets garbage pile up
// before it is collected. What a daemon keeps is small and what it throws away
// is much, so that without headroom it would collect many times a second: that
// took a twentieth more processor time under a load of posts.
const headroomBytes = 64 << 20

// headroom makes the collector count memory that nobody touches, so that the
// system never has to provide it. Next to a large heap it hardly matters, as a
// higher GOGC would. Whoever sets GOGC or GOMEMLIMIT has decided otherwise and
// gets none. It counts as long as it is referred to.
func (p *Program) headroom() []byte {
	if p.value("GOGC") != "" || p.value("GOMEMLIMIT") != "" {
		return nil
	}
	return make([]byte, headroomBytes)
}
