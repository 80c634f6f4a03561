#!/bin/sh
# The handler in shell that `conductord step test --handler` tests.
line=$(cat)

# text and word read an argument that is a text without quotes, or another plain value.
text() { printf '%s' "$line" | sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p"; }
word() { printf '%s' "$line" | sed -n "s/.*\"$1\":\([a-z0-9.]*\).*/\1/p"; }

case $1 in
test.echo) printf '{"arguments": %s, "attempt": %s, "key": "%s"}' "$line" "$CONDUCTORD_ATTEMPT" "$CONDUCTORD_KEY" ;;
test.fail)
	printf '{"failure": {"message": "%s", "kind": "%s"}}' "$(text message)" "$(text kind)"
	[ "$(word permanent)" = true ] && exit 65
	exit 1
	;;
test.sleep)
	trap 'kill $!; exit 1' TERM
	sleep "$(word seconds)" &
	wait $!
	printf '{"slept": %s, "attempt": %s}' "$(word seconds)" "$CONDUCTORD_ATTEMPT"
	;;
test.progress)
	for n in 1 2 3; do
		printf '{"done": %s, "total": 3, "details": {"at": %s}}\n' $n $n >&3
		echo "line $n" >&2
	done
	echo '{"reported": 3}'
	;;
test.later)
	if [ "$CONDUCTORD_ASKED" -lt "$(word times)" ]; then
		echo '{"not_yet": "100ms"}'
		exit 75
	fi
	printf '{"asked": %s}' "$CONDUCTORD_ASKED"
	;;
test.checkpoint)
	row=$(printf '%s' "$line" | sed -n 's/.*"$checkpoints":{"row":\([0-9]*\)}.*/\1/p')
	row=$((${row:-0} + 1))
	echo '{"checkpoint": {"name": "row", "value": '$row'}}' >&3
	read -r answer <&4 # after the record
	[ "$row" -lt "$(word rows)" ] && exit 1
	printf '{"row": %s}' "$row"
	;;
test.keep) printf '{"kept": %s}' "$(printf '%s' "$line" | sed 's/^{"value"://; s/}$//')" ;;
test.unkeep)
	value=$(printf '%s' "$line" | sed 's/.*,"value"://; s/}$//')
	case $line in
	*'"$result":{"kept": '"$value"'}'* | *'"$result":{"kept":'"$value"'}'*) ;;
	*) exit 65 ;;
	esac
	;;
test.big) printf '{"data": "%s"}' "$(head -c "$(word bytes)" /dev/zero | tr '\0' x)" ;;
test.garbage) echo 'this is no JSON' ;;
test.crash) exit 3 ;;
*) exit 65 ;;
esac
