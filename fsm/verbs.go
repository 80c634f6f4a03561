package fsm

import v1 "github.com/conductord/conductord/api/conductord/v1"

// applier applies a command. An error is a refusal.
type applier func(*txn, *v1.Command) (*v1.Result, error)

// appliers is the state machine's half of the table of commands: the function that applies
// each command, by its name in command.Verbs.
var appliers = map[string]applier{
	"post":                answered((*v1.Command).GetPost, (*txn).post),
	"claim":               answered((*v1.Command).GetClaim, (*txn).claim),
	"claim_next":          answered((*v1.Command).GetClaimNext, (*txn).claimNext),
	"consume":             done((*v1.Command).GetConsume, (*txn).consume),
	"abandon":             done((*v1.Command).GetAbandon, (*txn).abandon),
	"trash":               done((*v1.Command).GetTrash, (*txn).trash),
	"open_session":        answered((*v1.Command).GetOpenSession, (*txn).openSession),
	"close_session":       done((*v1.Command).GetCloseSession, (*txn).closeSession),
	"register":            done((*v1.Command).GetRegister, (*txn).register),
	"save_book":           done((*v1.Command).GetSaveBook, (*txn).saveBook),
	"update_flow":         done((*v1.Command).GetUpdateFlow, (*txn).updateFlow),
	"destroy_book":        done((*v1.Command).GetDestroyBook, (*txn).destroyBook),
	"suspend":             done((*v1.Command).GetSuspend, (*txn).suspend),
	"resume":              done((*v1.Command).GetResume, (*txn).resume),
	"cancel":              done((*v1.Command).GetCancel, (*txn).cancel),
	"transfer":            done((*v1.Command).GetTransfer, (*txn).transfer),
	"unreserve":           done((*v1.Command).GetUnreserve, (*txn).unreserve),
	"retry_now":           done((*v1.Command).GetRetryNow, (*txn).retryNow),
	"signal":              answered((*v1.Command).GetSignal, (*txn).signal),
	"publish":             answered((*v1.Command).GetPublish, (*txn).publish),
	"decide":              answered((*v1.Command).GetDecide, (*txn).decideApproval),
	"override":            answered((*v1.Command).GetOverride, (*txn).overrideApproval),
	"change":              done((*v1.Command).GetChange, (*txn).change),
	"intervene":           answered((*v1.Command).GetIntervene, (*txn).intervene),
	"retry":               done((*v1.Command).GetRetry, (*txn).retry),
	"purge":               done((*v1.Command).GetPurge, (*txn).purge),
	"extend_claim":        done((*v1.Command).GetExtendClaim, (*txn).extendClaim),
	"raise_version":       done((*v1.Command).GetRaiseVersion, (*txn).raiseVersion),
	"begin_leadership":    done((*v1.Command).GetBeginLeadership, (*txn).beginLeadership),
	"expire_session":      done((*v1.Command).GetExpireSession, (*txn).expireSession),
	"expire_claim":        done((*v1.Command).GetExpireClaim, (*txn).expireClaim),
	"wake_due":            answered((*v1.Command).GetWakeDue, (*txn).wakeDue),
	"sweep":               answered((*v1.Command).GetSweep, (*txn).sweep),
	"create_board":        done((*v1.Command).GetCreateBoard, (*txn).createBoard),
	"limit_board":         done((*v1.Command).GetLimitBoard, (*txn).limitBoard),
	"age_board":           done((*v1.Command).GetAgeBoard, (*txn).ageBoard),
	"pause_board":         done((*v1.Command).GetPauseBoard, (*txn).pauseBoard),
	"resume_board":        done((*v1.Command).GetResumeBoard, (*txn).resumeBoard),
	"delete_board":        done((*v1.Command).GetDeleteBoard, (*txn).deleteBoard),
	"drain_conductor":     done((*v1.Command).GetDrainConductor, (*txn).drainConductor),
	"undrain_conductor":   done((*v1.Command).GetUndrainConductor, (*txn).undrainConductor),
	"delete_schedule":     done((*v1.Command).GetDeleteSchedule, (*txn).deleteSchedule),
	"pause_schedule":      done((*v1.Command).GetPauseSchedule, (*txn).pauseSchedule),
	"save_schedule":       answered((*v1.Command).GetSaveSchedule, (*txn).saveSchedule),
	"resume_schedule":     done((*v1.Command).GetResumeSchedule, (*txn).resumeSchedule),
	"fire_schedule":       done((*v1.Command).GetFireSchedule, (*txn).fireSchedule),
	"run_schedule":        answered((*v1.Command).GetRunSchedule, (*txn).runSchedule),
	"record_act":          done((*v1.Command).GetRecordAct, (*txn).recordAct),
	"save_principal":      done((*v1.Command).GetSavePrincipal, (*txn).savePrincipal),
	"delete_principal":    done((*v1.Command).GetDeletePrincipal, (*txn).deletePrincipal),
	"add_access_token":    done((*v1.Command).GetAddAccessToken, (*txn).addAccessToken),
	"revoke_access_token": done((*v1.Command).GetRevokeAccessToken, (*txn).revokeAccessToken),
	"note_token_uses":     done((*v1.Command).GetNoteTokenUses, (*txn).noteTokenUses),
	"save_quota":          done((*v1.Command).GetSaveQuota, (*txn).saveQuota),
	"delete_quota":        done((*v1.Command).GetDeleteQuota, (*txn).deleteQuota),
	"backfill_schedule":   answered((*v1.Command).GetBackfillSchedule, (*txn).backfillSchedule),
}

// answered makes the applier of a command with a result.
func answered[M any](message func(*v1.Command) M, apply func(*txn, M) (*v1.Result, error)) applier {
	return func(t *txn, c *v1.Command) (*v1.Result, error) { return apply(t, message(c)) }
}

// done makes the applier of a command without a result.
func done[M any](message func(*v1.Command) M, apply func(*txn, M) error) applier {
	return func(t *txn, c *v1.Command) (*v1.Result, error) { return nil, apply(t, message(c)) }
}
