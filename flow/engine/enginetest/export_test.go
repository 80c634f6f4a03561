package enginetest

// Repeated is for tests: the engine and the logbook keep such updates from
// being written at all.
var Repeated = repeated
