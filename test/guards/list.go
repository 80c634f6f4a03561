package main

// guard is one check in the product that a promise depends on, with the edit that removes it
// and the test that must then fail.
type guard struct {
	name   string
	holds  string // the promise that rests on it
	file   string // from the top of the module
	keep   string // the text of the guard; it occurs once in the file
	remove string // the text that replaces it: the same program without the guard
	pkg    string // the package of the test, from the top of the module
	test   string
	row    string // the part of the test that suffices; empty: all of it
}

// guards are all of them. docs/guarantee-tests.md lists the same rows.
var guards = []guard{
	{
		name: "fence", holds: "the state machine refuses a write with the token of an ended claim",
		file: "fsm/flow.go", keep: "case j.Claim.Token != token:", remove: "case false:",
		pkg: "fsm", test: "TestBoardAgreesWithItsModel",
	},
	{
		name: "quorum round", holds: "a deposed leader answers no read",
		file: "raftboard/node/raftlog/confirm.go", keep: "if err := r.askPeers(term); err != nil {", remove: "if err := error(nil); err != nil {",
		pkg: "raftboard/node", test: "TestIsolatedLeaderAnswersNothing",
	},
	{
		name: "timer epoch", holds: "a deposed leader expires no session",
		file: "fsm/timers.go", keep: "if epoch != t.TimerEpoch {", remove: "if false {",
		pkg: "fsm", test: "TestTimersOfADeposedLeader",
	},
	{
		name: "cool-down", holds: "after the death of an owner, its job waits for the cool-down before the next claim",
		file: "fsm/stop_request.go", keep: "cooled = t.after(delay)", remove: "cooled = t.after(0)",
		pkg: "fsm", test: "TestExpireSession",
	},
	{
		name: "cluster clock", holds: "one wrong clock of three does not change the cluster time",
		file: "raftboard/node/clock/rounds.go", keep: "least, most := offsets[len(offsets)-majority], offsets[majority-1]",
		remove: "least, most := offsets[0], offsets[0]",
		pkg:    "raftboard/node/clock", test: "TestAgreedTime",
	},
	{
		name: "truncation", holds: "no message from another node removes an applied entry",
		file: "raftboard/node/raftlog/appliedguard.go", keep: "if from > applied || (all && a.restored.Load() >= applied) {", remove: "if true {",
		pkg: "raftboard/node", test: "TestAppliedEntriesAreNeverRemoved", row: "/the_log_is_cut_at_its_first_entry/bolt",
	},
	{
		name: "member check", holds: "nodes with different member lists elect no leader",
		file: "raftboard/node/raftlog/transport/handshake.go", keep: "case maps.Equal(other.Members, p.options.Roster):", remove: "case true || maps.Equal(other.Members, p.options.Roster):",
		pkg: "raftboard/node", test: "TestWrongMemberLists", row: "/one_lists_itself_alone,_and_is_first",
	},
	{
		name: "removed members", holds: "the members refuse a removed node that starts again",
		file: "raftboard/node/raftlog/membership/membership.go", keep: "\tif was {", remove: "\tif false && was {",
		pkg: "raftboard/node", test: "TestReplaceMembers",
	},
	{
		name: "hanging disk", holds: "another node replaces a leader with a hanging disk",
		file: "raftboard/node/raftlog/transport/port.go", keep: "if c.peer != nil && c.port.options.Mute() {", remove: "if false {",
		pkg: "raftboard/node", test: "TestHangingDiskCostsTheLeadership",
	},
	{
		name: "first marks", holds: "no step starts before its mark is durable, except repeatable steps",
		file: "flow/engine/loop.go", keep: "if l.acknowledged < l.recorded {", remove: "if false {",
		pkg: "flow/engine", test: "TestStepsWaitForTheirMarks",
	},
	{
		name: "unbegun", holds: "a revert runs only if its step has started",
		file: "flow/engine/core.go", keep: "if action == logbook.ActionRevert && !v.touched {", remove: "if false {",
		pkg: "flow/engine", test: "TestNothingIsUndoneThatNeverBegan",
	},
	{
		name: "run ahead", holds: "no step uses a result that a crash can lose, except repeatable steps",
		file: "flow/engine/ahead.go", keep: "if !step.Repeatable() || offered ||", remove: "if offered ||",
		pkg: "test/cluster", test: "TestOnlyRepeatableStepsRunAhead",
	},
	{
		name: "secrets", holds: "the record of a step contains no secret",
		file: "flow/engine/perform.go", keep: "hidden.report(r, &l.options.Limits)", remove: "_ = hidden",
		pkg: "flow/engine", test: "TestSecretsAreNeverRecorded",
	},
	{
		name: "roles", holds: "a caller has only the permissions of its roles on each board",
		file: "raftboard/node/guard/permission.go", keep: "if grant.Boards == access.AllBoards || board != access.AllBoards && grant.Covers(board) {", remove: "if true {",
		pkg: "raftboard/node", test: "TestWhatEachRoleMay",
	},
	{
		name: "own sessions", holds: "only the principal that opened a session can use the session and its claims",
		file: "fsm/access.go", keep: "return t.by == \"\" || session.Principal == \"\" || t.by == session.Principal", remove: "return true || session.Principal == t.by",
		pkg: "fsm", test: "TestOwnSessions",
	},
	{
		name: "own books", holds: "a job cannot use a book of another board",
		file: "fsm/access.go", keep: "if t.by != \"\" && book.Board != board {", remove: "if false {",
		pkg: "raftboard/node", test: "TestTenantsDoNotMeet",
	},
	{
		name: "quotas", holds: "a posting over a quota creates no job",
		file: "fsm/board.go", keep: "if err := t.checkQuotas(j, true); err != nil {", remove: "if err := t.checkQuotas(j, true); false {",
		pkg: "fsm", test: "TestQuotaOfPrincipal",
	},
	{
		name: "keys", holds: "nobody can retry a finished job while an unfinished job has the same key",
		file: "fsm/board.go", keep: "if err := t.checkKey(j, j.Board); err != nil {", remove: "if err := t.checkKey(j, j.Board); false {",
		pkg: "fsm", test: "TestNoJobComesBackToATakenKey",
	},
	{
		name: "vouching", holds: "the leader refuses a forwarded call from a node without access control",
		file: "raftboard/node/guard/guard.go", keep: "if name == \"\" && header.Get(wire.HeaderHops) != \"\" {", remove: "if false {",
		pkg: "raftboard/node", test: "TestOpenNodeCannotVouch",
	},
	{
		name: "current members", holds: "a node refuses the certificate of a removed node or a node of another cluster",
		file: "raftboard/node/guard/guard.go", keep: "if node == g.Node || g.IsMember(node) {", remove: "if true {",
		pkg: "raftboard/node", test: "TestCertificates",
	},
	{
		name: "known leaders", holds: "a node without a leader accepts messages only from nodes that a member lists",
		file: "raftboard/node/raftlog/membership/membership.go", keep: "!m.group.Follows(other.ID()) && m.vouched(other.ID()) {", remove: "!m.group.Follows(other.ID()) {",
		pkg: "raftboard/node", test: "TestStrangerLeadsNobody",
	},
	{
		name: "encrypted values", holds: "a conductor starts no step of a job if it cannot decrypt the job's values",
		file: "conductor/encrypted.go", keep: "if !encrypted {", remove: "if true || !encrypted {",
		pkg: "conductor", test: "TestEncryptedValues",
	},
	{
		name: "places of values", holds: "clients do not decrypt an encrypted value that was moved to another place",
		file: "valuekeys/valuekeys.go", keep: "[]string{k.id, place.Owner, place.Step, place.Field, place.Name}", remove: "[]string{k.id}",
		pkg: "raftboard/node", test: "TestMovedValuesAreRefused",
	},
}
