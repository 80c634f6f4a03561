/** A JSON value. Integers beyond 2^53 are bigint, in both directions. */
export type Json = null | boolean | number | bigint | string | Json[] | { [name: string]: Json };

// JSON.parse of Node 20 rounds large integers, and shows its reviver no source text. So they pass
// through JSON.parse and JSON.stringify as strings with a mark that no other text has: each process
// chooses a random mark.
const mark = `bigint:${crypto.randomUUID()}:`;
const tokens = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
const marked = new RegExp(`"${mark}(-?\\d+)"`, "g");

/** Parses JSON. Integers that a number cannot hold become bigint; fractions are rounded to a double. */
export function decode(text: string): unknown {
	if (!/\d{16}/.test(text)) {
		return JSON.parse(text);
	}
	JSON.parse(text); // an error names a position in the original text
	let found = false;
	const safe = text.replace(tokens, (token) => {
		if (!/^-?\d{16,}$/.test(token) || Number.isSafeInteger(Number(token))) {
			return token;
		}
		found = true;
		return `"${mark}${token}"`;
	});
	const revive = (_: string, value: unknown) =>
		typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value;
	return found ? JSON.parse(safe, revive) : JSON.parse(text);
}

/** Writes JSON. It throws for values that JSON.stringify would drop or replace. */
export function encode(value: unknown): string {
	let found = false;
	const text = JSON.stringify(value, function (this: Record<string, unknown>, name: string, given: unknown) {
		const original = this[name];
		const fault = faultOf(original);
		if (fault !== undefined) {
			throw new TypeError(`${name === "" ? "the value" : `the field ${JSON.stringify(name)}`} is ${fault}, which JSON cannot hold`);
		}
		if (typeof original !== "bigint") {
			return given;
		}
		found = true;
		return mark + original;
	});
	if (text === undefined) {
		throw new TypeError("the value is undefined, which JSON cannot hold");
	}
	return found ? text.replace(marked, "$1") : text;
}

/** A copy in JSON form: getters, and later changes by the step, cannot affect it. It throws as encode does. */
export const plain = (value: unknown): Json => decode(encode(value)) as Json;

function faultOf(value: unknown): string | undefined {
	switch (typeof value) {
		case "function":
		case "symbol":
			return `a ${typeof value}`;
		case "number":
			return Number.isFinite(value) ? undefined : String(value);
		case "object":
			if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) {
				return "bytes";
			}
			if (value instanceof Map || value instanceof Set || value instanceof Promise) {
				return `a ${value.constructor.name}`;
			}
	}
	return undefined;
}

/** A duration in the form of the wire. */
export const seconds = (ms: number): string => `${(ms / 1000).toFixed(3)}s`;

/** Milliseconds of a duration on the wire. */
export const milliseconds = (text: string): number => Number.parseFloat(text) * 1000;

/** The start of a text, at most a number of bytes of UTF-8, without half a character. */
export function clip(text: string, bytes: number): string {
	const buffer = Buffer.alloc(Math.min(bytes, 3 * text.length));
	return buffer.toString("utf8", 0, new TextEncoder().encodeInto(text, buffer).written);
}
