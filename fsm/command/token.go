package command

import (
	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/logbook"
)

// TokenToProto converts a token. The zero token is unset.
func TokenToProto(token logbook.Token) *v1.Token {
	if token.IsZero() {
		return nil
	}
	return &v1.Token{Generation: token.Generation, Index: token.Index}
}

// TokenInto is TokenToProto into the message of another token, if there is one.
func TokenInto(message *v1.Token, token logbook.Token) *v1.Token {
	if message == nil || token.IsZero() {
		return TokenToProto(token)
	}
	message.Generation, message.Index = token.Generation, token.Index
	return message
}

// TokenFromProto converts a token. Unset is the zero token.
func TokenFromProto(message *v1.Token) logbook.Token {
	return logbook.Token{Generation: message.GetGeneration(), Index: message.GetIndex()}
}
