package measure

// The parts of ReadMemory and ReadCPU that need no process.
var (
	ParseMemory = parseMemory
	ParseCPU    = parseCPU
)
