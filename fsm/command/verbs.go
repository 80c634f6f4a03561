package command

import (
	"fmt"
	"reflect"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/logbook"
)

// Permission is the permission class that a verb needs.
type Permission string

// The classes of verbs. Calls that only read have the class Read.
const (
	Read       Permission = "read"
	Post       Permission = "post"       // post jobs to a board
	Work       Permission = "work"       // hold a session, claim jobs, and record their results
	Operate    Permission = "operate"    // control jobs, schedules and conductors of others
	Signal     Permission = "signal"     // send signals to jobs
	Decide     Permission = "decide"     // decide approvals
	Override   Permission = "override"   // decide approvals alone, whatever they need
	Administer Permission = "administer" // create, limit and delete boards, back up the cluster
	Lead       Permission = "lead"       // the leader's own; no caller has it
)

// Verb is a row of the table of commands. The row has the check of the command; command.proto and
// service.proto state the rest. Package fsm has the other half: how each is applied.
type Verb struct {
	Name       string // of its field in message Command
	Permission Permission
	Rule       *v1.Rule // of its field in message Command
	// Call is the call that only applies the command's message, such as "BoardService/Suspend". It
	// is empty for the leader's own commands, and for commands whose call does more.
	Call string
	// Since is the version of the vocabulary that has the command. 0: the first
	Since byte

	check func(logbook.Limits, *v1.Command) error
	field protoreflect.FieldDescriptor
}

// verbs is the table.
var verbs = []Verb{
	verb("post", (*v1.Command).GetPost, checkPost),
	verb("claim", (*v1.Command).GetClaim, checkClaim),
	verb("claim_next", (*v1.Command).GetClaimNext, checkClaimNext),
	verb("extend_claim", (*v1.Command).GetExtendClaim, checkExtend),
	verb("consume", (*v1.Command).GetConsume, checkConsume),
	verb("abandon", (*v1.Command).GetAbandon, checkAbandon),
	verb("trash", (*v1.Command).GetTrash, checkTrash),

	verb("suspend", (*v1.Command).GetSuspend, checkSuspension),
	verb("resume", (*v1.Command).GetResume, checkPlainCommand),
	verb("cancel", (*v1.Command).GetCancel, checkStop),
	verb("transfer", (*v1.Command).GetTransfer, checkTransfer),
	verb("unreserve", (*v1.Command).GetUnreserve, checkPlainCommand),
	verb("retry_now", (*v1.Command).GetRetryNow, checkRetryNow),
	verb("signal", (*v1.Command).GetSignal, converted(SignalCommandFromProto, jobs.CheckSignalCommand)),
	verb("publish", (*v1.Command).GetPublish, converted(PublicationFromProto, jobs.CheckPublication)),
	verb("decide", (*v1.Command).GetDecide, converted(DecideCommandFromProto, jobs.CheckDecisionCommand)),
	verb("override", (*v1.Command).GetOverride, converted(OverrideCommandFromProto, jobs.CheckDecisionCommand)),
	verb("change", (*v1.Command).GetChange, converted(ChangeFromProto, jobs.CheckChange)),
	verb("intervene", (*v1.Command).GetIntervene, converted(InterventionFromProto, logbook.Limits.CheckIntervention)),
	verb("retry", (*v1.Command).GetRetry, checkPlainCommand),
	verb("purge", (*v1.Command).GetPurge, checkPlainCommand),

	verb("create_board", (*v1.Command).GetCreateBoard, checkBoardName),
	verb("limit_board", (*v1.Command).GetLimitBoard, checkLimitBoard),
	verb("age_board", (*v1.Command).GetAgeBoard, checkAgeBoard),
	verb("pause_board", (*v1.Command).GetPauseBoard, checkBoardCommand),
	verb("resume_board", (*v1.Command).GetResumeBoard, checkBoardCommand),
	verb("delete_board", (*v1.Command).GetDeleteBoard, checkBoardName),

	verb("open_session", (*v1.Command).GetOpenSession, converted(OpeningFromProto, jobs.CheckOpening)),
	verb("close_session", (*v1.Command).GetCloseSession, checkCloseSession),
	verb("register", (*v1.Command).GetRegister, checkRegister),
	verb("drain_conductor", (*v1.Command).GetDrainConductor, checkDrain),
	verb("undrain_conductor", (*v1.Command).GetUndrainConductor, checkUndrain),

	verb("save_book", (*v1.Command).GetSaveBook, converted(BookFromProto, logbook.Limits.CheckBook)),
	verb("update_flow", (*v1.Command).GetUpdateFlow, converted(UpdateFromProto, logbook.Limits.CheckUpdate)),
	verb("destroy_book", (*v1.Command).GetDestroyBook, checkDestroyBook),

	verb("delete_schedule", (*v1.Command).GetDeleteSchedule, checkDeleteSchedule),
	verb("pause_schedule", (*v1.Command).GetPauseSchedule, checkPauseSchedule),

	verb("save_principal", (*v1.Command).GetSavePrincipal, checkSavePrincipal),
	verb("delete_principal", (*v1.Command).GetDeletePrincipal, checkDeletePrincipal),
	verb("add_access_token", (*v1.Command).GetAddAccessToken, checkAddAccessToken),
	verb("revoke_access_token", (*v1.Command).GetRevokeAccessToken, checkRevokeAccessToken),
	verb("note_token_uses", (*v1.Command).GetNoteTokenUses, checkNoteTokenUses),
	verb("save_quota", (*v1.Command).GetSaveQuota, checkSaveQuota),
	verb("delete_quota", (*v1.Command).GetDeleteQuota, checkDeleteQuota),

	verb("record_act", (*v1.Command).GetRecordAct, checkRecordAct),
	verb("raise_version", (*v1.Command).GetRaiseVersion, checkRaiseVersion),
	verb("begin_leadership", (*v1.Command).GetBeginLeadership, checkBeginLeadership),
	verb("expire_session", (*v1.Command).GetExpireSession, checkExpire),
	verb("expire_claim", (*v1.Command).GetExpireClaim, checkExpireClaim),
	verb("wake_due", (*v1.Command).GetWakeDue, checkWakeDue),
	verb("sweep", (*v1.Command).GetSweep, checkSweep),
	verb("save_schedule", (*v1.Command).GetSaveSchedule, checkSaveSchedule),
	verb("resume_schedule", (*v1.Command).GetResumeSchedule, checkResumeSchedule),
	verb("fire_schedule", (*v1.Command).GetFireSchedule, checkFireSchedule),
	verb("run_schedule", (*v1.Command).GetRunSchedule, checkRunSchedule),
	verb("backfill_schedule", (*v1.Command).GetBackfillSchedule, checkBackfillSchedule),
}

// byKind finds a verb by the type of Command's field.
var byKind = verbsByKind()

func verbsByKind() map[reflect.Type]*Verb {
	found := make(map[reflect.Type]*Verb, len(verbs))
	for i := range verbs {
		found[reflect.TypeOf(verbs[i].Command(verbs[i].Request()).Kind)] = &verbs[i]
	}
	return found
}

// verb makes a row. get is the getter of the command's field.
func verb[M proto.Message](name string, get func(*v1.Command) M, check func(logbook.Limits, M) error) Verb {
	field := (&v1.Command{}).ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(name))
	if field == nil {
		panic(fmt.Sprintf("internal error: message Command has no field %s", name))
	}
	return Verb{
		Name: name, Permission: PermissionOf(name), Rule: RuleOf(name), Call: callOf[name], field: field,
		check: func(limits logbook.Limits, c *v1.Command) error { return check(limits, get(c)) },
	}
}

// Verbs are the rows of the table, in its order.
func Verbs() []Verb { return verbs }

// VerbOf returns the row of a command; nil if no command is set, or if this program does not know
// the command.
func VerbOf(c *v1.Command) *Verb { return byKind[reflect.TypeOf(c.GetKind())] }

// Needs is the version of the vocabulary that a command needs.
func Needs(c *v1.Command) byte {
	if verb := VerbOf(c); verb != nil {
		return max(verb.Since, 1)
	}
	return Version
}

// Request makes an empty message of the command.
func (v *Verb) Request() proto.Message {
	return (&v1.Command{}).ProtoReflect().NewField(v.field).Message().Interface()
}

// Message is the message of a command of the verb.
func (v *Verb) Message(c *v1.Command) proto.Message {
	return c.ProtoReflect().Get(v.field).Message().Interface()
}

// Command makes the command of its message.
func (v *Verb) Command(message proto.Message) *v1.Command {
	c := &v1.Command{}
	c.ProtoReflect().Set(v.field, protoreflect.ValueOfMessage(message.ProtoReflect()))
	return c
}

// Answer makes an empty message of the answer type of the verb's call.
func (v *Verb) Answer() proto.Message {
	service, method, _ := strings.Cut(v.Call, "/")
	services := v1.File_conductord_v1_service_proto.Services()
	name := services.ByName(protoreflect.Name(service)).Methods().ByName(protoreflect.Name(method)).Output().FullName()
	known, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		panic(fmt.Sprintf("internal error: message %s of call %s is not generated", name, v.Call))
	}
	return known.New().Interface()
}

// AnswerOf returns the answer of a verb's call: the content of its result, or Done.
func AnswerOf(result *v1.Result) proto.Message {
	message := result.ProtoReflect()
	field := message.WhichOneof(message.Descriptor().Oneofs().ByName("kind"))
	if field == nil {
		return &v1.Done{}
	}
	return message.Get(field).Message().Interface()
}

// Name is the word for a command in logs and metrics, such as "claim_next".
func Name(c *v1.Command) string {
	if known := VerbOf(c); known != nil {
		return known.Name
	}
	return unknownName
}

// unknownName is the name of a command that this program does not know.
const unknownName = "unknown"

// LeaderOnly reports whether only the leader itself may propose the command. From a client, it is
// refused with ErrNotAllowed.
func LeaderOnly(c *v1.Command) bool {
	known := VerbOf(c)
	return known != nil && known.Permission == Lead
}
