package command

import (
	"crypto/sha256"
	"fmt"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/logbook"
)

// allowed has the permissions of each role.
var allowed = map[access.Role][]Permission{
	access.Viewer:        {Read},
	access.Signaller:     {Read, Signal},
	access.Approver:      {Read, Decide},
	access.Poster:        {Read, Post, Signal},
	access.Worker:        {Read, Work},
	access.Operator:      {Read, Post, Signal, Decide, Operate},
	access.Administrator: {Read, Post, Work, Signal, Decide, Override, Operate, Administer},
}

// Allows reports whether a role has a permission.
func Allows(role access.Role, needed Permission) bool {
	for _, has := range allowed[role] {
		if has == needed {
			return true
		}
	}
	return false
}

// PrincipalToProto converts a principal; nil stays nil.
func PrincipalToProto(p *access.Principal) *v1.Principal {
	if p == nil {
		return nil
	}
	message := &v1.Principal{
		Name: p.Name, Grants: GrantsToProto(p.Grants), HideValues: p.HideValues, Approves: p.Approves,
		CreatedAt: TimeToProto(p.CreatedAt), UpdatedAt: TimeToProto(p.UpdatedAt), By: p.By, Revision: p.Revision,
	}
	for i := range p.Tokens {
		message.Tokens = append(message.Tokens, accessTokenToProto(&p.Tokens[i]))
	}
	return message
}

// PrincipalFromProto converts a principal. Nil is the zero principal.
func PrincipalFromProto(message *v1.Principal) (access.Principal, error) {
	var r reader
	p := access.Principal{
		Name: message.GetName(), Grants: GrantsFromProto(message.GetGrants()), HideValues: message.GetHideValues(), Approves: message.GetApproves(),
		CreatedAt: r.time("principal created_at", message.GetCreatedAt()), UpdatedAt: r.time("principal updated_at", message.GetUpdatedAt()),
		By: message.GetBy(), Revision: message.GetRevision(),
	}
	for _, token := range message.GetTokens() {
		p.Tokens = append(p.Tokens, accessTokenFromProto(&r, token))
	}
	if r.err != nil {
		return access.Principal{}, r.err
	}
	return p, nil
}

// GrantsToProto converts grants.
func GrantsToProto(grants []access.Grant) []*v1.Grant {
	var messages []*v1.Grant
	for _, grant := range grants {
		messages = append(messages, &v1.Grant{Role: string(grant.Role), Boards: grant.Boards})
	}
	return messages
}

// GrantsFromProto converts grants, with roles that this program may not know.
func GrantsFromProto(messages []*v1.Grant) []access.Grant {
	var grants []access.Grant
	for _, message := range messages {
		grants = append(grants, access.Grant{Role: access.Role(message.GetRole()), Boards: message.GetBoards()})
	}
	return grants
}

func accessTokenToProto(t *access.Token) *v1.AccessToken {
	message := &v1.AccessToken{Id: idText(t.ID.UUID), Expires: TimeToProto(t.Expires), CreatedAt: TimeToProto(t.CreatedAt), By: t.By, LastUsed: TimeToProto(t.LastUsed)}
	if t.Hash != [sha256.Size]byte{} {
		message.Hash = t.Hash[:]
	}
	return message
}

func accessTokenFromProto(r *reader, message *v1.AccessToken) access.Token {
	t := access.Token{
		ID:      access.TokenID{UUID: r.id("token id", message.GetId())},
		Expires: r.time("token expires", message.GetExpires()), CreatedAt: r.time("token created_at", message.GetCreatedAt()), By: message.GetBy(),
		LastUsed: r.time("token last_used", message.GetLastUsed()),
	}
	if n := len(message.GetHash()); n != 0 && n != sha256.Size && r.err == nil {
		r.err = &logbook.InvalidError{Field: "token hash", Reason: fmt.Sprintf("has %d bytes; a SHA-256 hash has %d", n, sha256.Size)}
	}
	copy(t.Hash[:], message.GetHash())
	return t
}

// SavedPrincipal returns the principal that a command saves.
func SavedPrincipal(c *v1.SavePrincipalCommand) access.Principal {
	return access.Principal{Name: c.GetName(), Grants: GrantsFromProto(c.GetGrants()), HideValues: c.GetHideValues(), Approves: c.GetApproves()}
}

// AddedToken is the token that a command adds.
func AddedToken(c *v1.AddAccessTokenCommand) (access.Token, error) {
	var r reader
	t := accessTokenFromProto(&r, &v1.AccessToken{Id: c.GetId(), Hash: c.GetHash(), Expires: c.GetExpires()})
	return t, r.err
}

// RevokedToken is the id of the token that a command revokes.
func RevokedToken(c *v1.RevokeAccessTokenCommand) (access.TokenID, error) {
	var r reader
	id := access.TokenID{UUID: r.id("token id", c.GetId())}
	return id, r.err
}

// SaveQuotaToProto makes the command that saves a quota.
func SaveQuotaToProto(q *access.Quota) *v1.SaveQuotaCommand {
	return &v1.SaveQuotaCommand{Principal: q.Principal, Boards: q.Boards, Limits: amountsToProto(&q.Limits)}
}

// SavedQuota is the quota that a command saves.
func SavedQuota(c *v1.SaveQuotaCommand) access.Quota {
	return access.Quota{Subject: access.Subject{Principal: c.GetPrincipal(), Boards: c.GetBoards()}, Limits: amountsFromProto(c.GetLimits())}
}

// DeletedQuota is the subject of the quota that a command deletes.
func DeletedQuota(c *v1.DeleteQuotaCommand) access.Subject {
	return access.Subject{Principal: c.GetPrincipal(), Boards: c.GetBoards()}
}

func checkSaveQuota(limits logbook.Limits, c *v1.SaveQuotaCommand) error {
	q := SavedQuota(c)
	return access.CheckQuota(limits, &q)
}

func checkDeleteQuota(limits logbook.Limits, c *v1.DeleteQuotaCommand) error {
	return access.CheckSubject(limits, DeletedQuota(c))
}

func checkSavePrincipal(limits logbook.Limits, c *v1.SavePrincipalCommand) error {
	p := SavedPrincipal(c)
	return access.CheckPrincipal(limits, &p)
}

func checkDeletePrincipal(limits logbook.Limits, c *v1.DeletePrincipalCommand) error {
	return access.CheckName(limits, c.GetName())
}

func checkAddAccessToken(limits logbook.Limits, c *v1.AddAccessTokenCommand) error {
	if err := access.CheckName(limits, c.GetPrincipal()); err != nil {
		return err
	}
	t, err := AddedToken(c)
	if err != nil {
		return err
	}
	return access.CheckToken(&t)
}

func checkRevokeAccessToken(limits logbook.Limits, c *v1.RevokeAccessTokenCommand) error {
	if err := access.CheckName(limits, c.GetPrincipal()); err != nil {
		return err
	}
	_, err := RevokedToken(c)
	return err
}

// RecordToProto converts a record of the audit log; nil stays nil.
func RecordToProto(r *access.Record) *v1.AuditRecord {
	if r == nil {
		return nil
	}
	return &v1.AuditRecord{
		Position: PositionToProto(r.Position), At: TimeToProto(r.At), Principal: r.Principal, From: r.From, Verb: r.Verb,
		Target: text(r.Target), Error: r.Error, Change: text(r.Change),
	}
}

// RecordFromProto converts a record of the audit log. Nil is the zero record.
func RecordFromProto(message *v1.AuditRecord) (access.Record, error) {
	var r reader
	record := access.Record{
		Position: PositionFromProto(message.GetPosition()), At: r.time("audit at", message.GetAt()), Principal: message.GetPrincipal(),
		From: message.GetFrom(), Verb: message.GetVerb(), Target: message.GetTarget(), Error: message.GetError(),
		Change: message.GetChange(),
	}
	return record, r.err
}

// RecordQueryToProto converts a query of the audit log.
func RecordQueryToProto(q *access.RecordQuery) *v1.ListAuditRequest {
	return &v1.ListAuditRequest{
		Principal: q.Principal, Verb: q.Verb, Target: q.Target, From: TimeToProto(q.From), To: TimeToProto(q.To), After: q.After,
		Limit: uint32(max(q.Limit, 0)),
	}
}

// RecordQueryFromProto converts a query of the audit log, and checks it.
func RecordQueryFromProto(message *v1.ListAuditRequest) (access.RecordQuery, error) {
	var r reader
	q := access.RecordQuery{
		Principal: message.GetPrincipal(), Verb: message.GetVerb(), Target: message.GetTarget(), From: r.time("query from", message.GetFrom()),
		To: r.time("query to", message.GetTo()), After: message.GetAfter(), Limit: int(min(message.GetLimit(), logbook.MaxPage)),
	}
	if r.err != nil {
		return q, r.err
	}
	return q, access.CheckRecordQuery(&q)
}

// RefusalFromProto converts a node's refusal.
func RefusalFromProto(message *v1.AuditRefusal) (access.Refusal, error) {
	var r reader
	refusal := access.Refusal{
		Node: message.GetNode(), Principal: message.GetPrincipal(), From: message.GetFrom(), Verb: message.GetVerb(),
		Error: message.GetError(), Count: message.GetCount(), Last: r.time("refusal last", message.GetLast()),
	}
	return refusal, r.err
}

// RefusalToProto converts a node's refusal; nil stays nil.
func RefusalToProto(refusal *access.Refusal) *v1.AuditRefusal {
	if refusal == nil {
		return nil
	}
	return &v1.AuditRefusal{
		Node: refusal.Node, Principal: refusal.Principal, From: refusal.From, Verb: refusal.Verb, Error: text(refusal.Error),
		Count: refusal.Count, Last: TimeToProto(refusal.Last),
	}
}

// TokenUseOf is the id of a token that was used.
func TokenUseOf(use *v1.TokenUse) (access.TokenID, error) {
	var r reader
	id := access.TokenID{UUID: r.id("token id", use.GetId())}
	return id, r.err
}

func checkNoteTokenUses(limits logbook.Limits, c *v1.NoteTokenUsesCommand) error {
	if n := len(c.GetUses()); n == 0 || n > access.MaxTokenUses {
		return &logbook.InvalidError{Field: "token uses", Reason: fmt.Sprintf("has %d items; it must have 1 to %d", n, access.MaxTokenUses)}
	}
	for _, use := range c.GetUses() {
		if err := access.CheckName(limits, use.GetPrincipal()); err != nil {
			return err
		}
		if _, err := TokenUseOf(use); err != nil {
			return err
		}
	}
	return nil
}

func checkRecordAct(limits logbook.Limits, r *v1.AuditRecord) error {
	if err := limits.CheckName("verb", r.GetVerb()); err != nil {
		return err
	}
	if size := len(r.GetTarget()); size > maxTarget {
		return &logbook.LimitError{Field: "target", Limit: maxTarget, Size: int64(size), Unit: "bytes"}
	}
	if size := len(r.GetChange()); size > maxChange {
		return &logbook.LimitError{Field: "change", Limit: maxChange, Size: int64(size), Unit: "bytes"}
	}
	return nil
}
