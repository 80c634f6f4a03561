package bareraft

// The coding of an entry, for its tests.
var (
	AppendCommand = appendCommand
	CommandsIn    = commandsIn
)
