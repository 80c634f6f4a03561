package bareraft

// Tests use the encoding of entries.
var (
	AppendCommand = appendCommand
	CommandsIn    = commandsIn
)
