import type { Json } from "./json.js";
import type { Work } from "./steps.js";
import type { Failure as WireFailure } from "./types.js";

const encrypted = /^\$encrypted:1:([A-Za-z0-9._-]{1,32}):[A-Za-z0-9+/=]+\$$/;
const maxWait = 60_000;

/**
 * Why a step must not start: one of its values is encrypted, and the client has no value keys. Undefined: no value is encrypted. Texts of
 * failures may be encrypted: they are for readers.
 */
export function missingKey(work: Work): string | undefined {
	for (const [what, value] of values(work)) {
		const found = typeof value === "string" ? encrypted.exec(value) : null;
		if (found) {
			return (
				`a value is encrypted with key ${found[1]}, and cannot be decrypted here: ${what}; run the step with \`conductord worker\` or a worker ` +
				"in Go, and set CONDUCTORD_VALUE_KEYS to a file with the key"
			);
		}
	}
	return undefined;
}

/** The milliseconds until a worker gets the attempt again. The time grows with each answer. */
export const keyWait = (work: Work): number => Math.min(1_000 * 2 ** Math.min(work.id.asked ?? 0, 6), maxWait);

function* values(work: Work): Generator<[string, Json | undefined]> {
	for (const [name, value] of Object.entries(work.arguments ?? {})) {
		yield [`the argument ${JSON.stringify(name)}`, value];
	}
	for (const { name, value } of work.checkpoints ?? []) {
		yield [`the checkpoint ${JSON.stringify(name)}`, value];
	}
	yield ["the result of the step", work.result];
	yield ["the details of the last progress", work.last_progress?.details];
	const failures: (WireFailure | undefined)[] = [work.last_failure, work.failure, ...(work.failures ?? [])];
	for (const [name, value] of failures.flatMap((failure) => Object.entries(failure?.details ?? {}))) {
		yield [`the failure's detail ${JSON.stringify(name)}`, value as Json];
	}
}
