package raftboard

import (
	"context"
	"errors"
	"sync"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// maxKnownDefinitions limits the memory for ids. A client with more flows than that sends some
// definitions again.
const maxKnownDefinitions = 4_096

// knownDefinitions are the definitions that the cluster had when this client sent them last.
// Updates name them by id, so a flow that runs thousands of times is logged once. The list is
// only a hint. The cluster reports a definition that it lacks: the last flow of that definition
// has gone, or a backup was restored.
type knownDefinitions struct {
	mu  sync.Mutex
	ids map[command.DefinitionID]bool
}

// shorten replaces definitions that the cluster has by their ids. It returns the definitions, by
// the position of their commands.
func (k *knownDefinitions) shorten(commands []*v1.Command) []*v1.Definition {
	k.mu.Lock()
	defer k.mu.Unlock()
	whole := make([]*v1.Definition, len(commands))
	for i, c := range commands {
		update := updateOf(c)
		if whole[i] = update.GetDefinition(); whole[i] == nil {
			continue
		}
		if id := definitionID(whole[i]); k.ids[id] {
			update.Definition, update.DefinitionId = nil, id[:]
		}
	}
	return whole
}

// note records whether the cluster has a definition.
func (k *knownDefinitions) note(definition *v1.Definition, has bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ids == nil || len(k.ids) >= maxKnownDefinitions {
		k.ids = make(map[command.DefinitionID]bool)
	}
	k.ids[definitionID(definition)] = has
}

func definitionID(d *v1.Definition) command.DefinitionID {
	return command.DefinitionIDOf(command.DefinitionFromProto(d))
}

// updateOf is the update in a command; nil if there is none.
func updateOf(c *v1.Command) *v1.Update {
	switch kind := c.GetKind().(type) {
	case *v1.Command_UpdateFlow:
		return kind.UpdateFlow
	case *v1.Command_Consume:
		return kind.Consume.GetUpdate()
	case *v1.Command_Abandon:
		return kind.Abandon.GetUpdate()
	case *v1.Command_Trash:
		return kind.Trash.GetUpdate()
	}
	return nil
}

// write sends updates and endings in order, with ids for definitions. If the cluster lacks one of
// these definitions, write sends the command again with the definition. It also sends all later
// refused commands again: the refusal of the first may have caused theirs. Commands that have
// happened are not sent again.
func (c *core) write(ctx context.Context, op operation, commands []*v1.Command) ([]*v1.Result, error) {
	if c.options.ValueKeys != nil { // encrypted definitions always differ
		results, _, err := c.ordered.do(ctx, op, commands)
		return results, err
	}
	whole := c.definitions.shorten(commands)
	results, _, err := c.ordered.do(ctx, op, commands)
	if err != nil {
		return nil, err
	}
	var again []*v1.Command
	var places []int // their indexes in results
	for i, result := range results {
		update := updateOf(commands[i])
		if lacks := len(update.GetDefinitionId()) > 0 && isUnknownDefinition(result); lacks {
			c.definitions.note(whole[i], false)
			update.Definition, update.DefinitionId = whole[i], nil
		} else if len(again) == 0 || result.GetError() == nil {
			continue
		}
		again, places = append(again, commands[i]), append(places, i)
	}
	if len(again) > 0 {
		repeated, _, err := c.ordered.do(ctx, op, again)
		if err != nil {
			return nil, afterSome(err, len(again) < len(commands))
		}
		for k, result := range repeated {
			results[places[k]] = result
		}
	}
	for i, definition := range whole {
		if definition != nil && updateOf(commands[i]).GetDefinition() != nil && results[i].GetError() == nil {
			c.definitions.note(definition, true)
		}
	}
	return results, nil
}

func isUnknownDefinition(result *v1.Result) bool {
	var invalid *logbook.InvalidError
	return errors.As(command.ErrorFromProto(result.GetError()), &invalid) && invalid.Field == command.DefinitionIDField
}
