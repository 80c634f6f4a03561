import type { Failure as WireFailure } from "./types.js";
import { clip, type Json } from "./json.js";

/** The message of a failure has so many bytes at most; the rest is cut. */
const maxMessage = 4 << 10;
/** A kind is a name. */
const maxKind = 255;
/** What an error leaves for people beside its message. */
const maxStderr = 16 << 10;

/** Names one attempt at a step. Strings and numbers come as they are sent back. */
export interface AttemptID {
	flow: string;
	step: string;
	action: "execute" | "revert";
	attempt: number;
	asked?: number;
}

/** What a worker is given. */
export interface Work {
	id: AttemptID;
	job: string;
	type: string;
	key: string;
	round?: number;
	token: string;
	arguments?: Record<string, Json>;
	result?: Json;
	failure?: WireFailure;
	failures?: WireFailure[];
	time_left?: string;
}

/** What a worker reports. */
export interface Report {
	id: AttemptID;
	done?: boolean;
	result?: unknown;
	failure?: WireFailure;
	not_yet?: string;
	progress?: { done?: number; total?: number; details?: unknown };
	output?: string;
	stderr?: string;
}

/** What a step knows about its attempt. */
export interface StepContext {
	readonly type: string;
	readonly job: string;
	readonly flow: string;
	readonly step: string;
	readonly action: "execute" | "revert";
	/** From 1. */
	readonly attempt: number;
	/** How often this attempt has said "not yet". */
	readonly asked: number;
	/** Counts the resets of the step. */
	readonly round: number;
	/** The same in all attempts of a round: show it to systems that recognise repeats. */
	readonly key: string;
	/** Show it to systems that refuse older ones. */
	readonly token: string;
	/** Aborted when the attempt must end: it was stopped, its time is over, or the session is lost. */
	readonly signal: AbortSignal;
	/** When the time of the attempt is over; undefined: no limit. */
	readonly deadline: Date | undefined;
	/** The milliseconds until then. */
	timeLeft(): number | undefined;
	/** Says how far the step is; the latest counts. A total of 0 is not known. */
	progress(done: number, total?: number, details?: Json): void;
	/** Writes a line for `conductord job logs`. */
	log(line: string): void;
	/** Of a revert: the result of the execution, its failure, and the failures of all steps. */
	readonly result: any;
	readonly failure: WireFailure | undefined;
	readonly failures: readonly WireFailure[];
}

/** A type of step. */
export interface StepType<A = any> {
	execute(args: A, ctx: StepContext): unknown;
	/** Undoes the step under the name of another type, with the same arguments. */
	revert?: { type: string; run(args: A, ctx: StepContext): unknown };
	/** Checks the arguments, and throws: the parse of a zod schema fits. Its error is a permanent failure `bad_argument`. */
	schema?: (args: unknown) => A;
}

export interface FailureOptions {
	/** A word of yours by which documents and people tell failures apart; `error`. */
	kind?: string;
	/** Another attempt would fail too. */
	permanent?: boolean;
	details?: Record<string, Json>;
	code?: number;
	cause?: unknown;
}

/** Throw it, and the step has failed with this kind. Other errors are failures of the kind `error`. */
export class Failure extends Error {
	readonly kind: string;
	readonly permanent: boolean;
	readonly details: Record<string, Json> | undefined;
	readonly code: number | undefined;

	constructor(message: string, options: FailureOptions = {}) {
		super(message, options.cause === undefined ? {} : { cause: options.cause });
		this.name = "Failure";
		this.kind = options.kind ?? "error";
		this.permanent = options.permanent ?? false;
		this.details = options.details;
		this.code = options.code;
	}
}

/** Throw it, and the step is asked again after these milliseconds, by any worker, without an attempt being counted. */
export class NotYet extends Error {
	constructor(readonly after: number, readonly details?: Json) {
		super(`not yet: ask again in ${after} ms`);
		this.name = "NotYet";
	}
}

/** The failure on the wire for what a step has thrown. */
export function failureOf(thrown: unknown): { failure: WireFailure; stderr?: string } {
	if (!(thrown instanceof Failure)) {
		const error = thrown instanceof Error ? thrown : new Error(`the step has thrown ${String(thrown)}`);
		const failure = { kind: "error", message: clip(error.message || error.name, maxMessage) };
		return error.stack ? { failure, stderr: clip(error.stack, maxStderr) } : { failure };
	}
	const { kind, permanent, details, code } = thrown;
	const failure: WireFailure = {
		kind: clip(kind.replace(/\p{Cc}/gu, " "), maxKind) || "error", message: clip(thrown.message || kind, maxMessage), permanent,
		...(details === undefined ? {} : { details }), ...(code === undefined ? {} : { code }),
	};
	return { failure };
}

/** The same for all spellings of one attempt. */
export const nameOf = (id: AttemptID): string => [id.flow, id.action, id.attempt, id.asked ?? 0, id.step].join(" ");
