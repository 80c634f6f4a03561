import { inspect } from "node:util";
import type { Failure as WireFailure } from "./types.js";
import { clip, type Json, plain, seconds } from "./json.js";

/** The maximum bytes of a failure's message; the rest is cut. */
const maxMessage = 4 << 10;
/** A kind is a name. */
const maxKind = 255;
/** The parts of an error for people, in addition to its message. */
const maxStderr = 16 << 10;

/** The id of one attempt at a step. Strings and numbers are sent back unchanged. */
export interface AttemptID {
	flow: string;
	step: string;
	action: "execute" | "revert";
	attempt: number;
	asked?: number;
}

/** The input of an attempt, as a worker receives it. */
export interface Work {
	id: AttemptID;
	job: string;
	type: string;
	key: string;
	round?: number;
	try?: number;
	tries?: number;
	last_failure?: WireFailure;
	cause?: RevertCause;
	token: string;
	arguments?: Record<string, Json>;
	result?: Json;
	failure?: WireFailure;
	failures?: WireFailure[];
	time_left?: string;
	last_progress?: { done?: number | string; total?: number | string; details?: Json };
	checkpoints?: { name: string; value?: Json }[];
}

/** Why a step is reverted. */
export interface RevertCause {
	kind: "failure" | "cancel" | "deadline" | "retry" | "operator" | "dropped";
	/** The operator. */
	by?: string;
	/** The operator's reason, or the text of the failure. */
	reason?: string;
}

/** A worker's report. */
export interface Report {
	id: AttemptID;
	done?: boolean;
	result?: unknown;
	failure?: WireFailure;
	not_yet?: string;
	progress?: { done?: number; total?: number; details?: unknown };
	output?: string;
	stderr?: string;
	checkpoint?: { name: string; value: Json; number: number };
	sends?: Sending[];
}

/** A signal that a step sends. */
export interface Sending {
	job?: string;
	key?: string;
	board?: string;
	signal: { name: string; data: Json };
}

/** The attempt, as its step sees it. */
export interface StepContext {
	readonly type: string;
	readonly job: string;
	readonly flow: string;
	readonly step: string;
	readonly action: "execute" | "revert";
	/** From 1. */
	readonly attempt: number;
	/** The number of times that this attempt has returned "not yet". */
	readonly asked: number;
	/** Counts the resets of the step. */
	readonly round: number;
	/** Failures of this round plus one; lost workers do not count. */
	readonly try: number;
	/** The maximum number of tries of the step's retry. */
	readonly tries: number;
	/** The failure of the previous try; undefined in the first try. */
	readonly lastFailure: WireFailure | undefined;
	/** The same in all attempts of a round: pass it to systems that recognise repeats. */
	readonly key: string;
	/** Pass it to systems that refuse older tokens. */
	readonly token: string;
	/** Aborted when the attempt must end: it was stopped, its time is over, or the session is lost. */
	readonly signal: AbortSignal;
	/** The deadline of the attempt; undefined: no limit. */
	readonly deadline: Date | undefined;
	/** The milliseconds until then. */
	timeLeft(): number | undefined;
	/** Reports the step's progress. A report replaces the earlier one. Total 0: unknown. */
	progress(done: number, total?: number, details?: Json): void;
	/** The last progress report of the previous attempt in this round; undefined: none. */
	readonly lastProgress: { done: number; total: number; details?: Json } | undefined;
	/** The checkpoints of this round by name, including those of earlier attempts. Each read makes a copy. */
	readonly checkpoints: Record<string, Json>;
	/**
	 * Records a value for the next attempt, and resolves when the record is durable. A later value of the same name replaces it. It rejects
	 * with a RefusedError for a value that is too large, and with an Error when the attempt is over. A crash between the work and its
	 * checkpoint repeats the work.
	 */
	checkpoint(name: string, value?: Json): Promise<void>;
	/**
	 * Runs a function once in a round, records its result as a checkpoint, and resolves to the recorded result in every later attempt. An
	 * exception is not recorded. A crash between the function and the record runs the function again.
	 */
	once<T extends Json>(name: string, run: () => T | Promise<T>): Promise<T>;
	/**
	 * Sends a signal to a job when this execution succeeds. The cluster sends it once, in the log entry that records the success. An
	 * execution that fails sends nothing.
	 */
	sendSignal(job: string, name: string, data?: Json): void;
	/** Sends a signal to the unfinished job with a key, like `sendSignal`. Default board: the board of this job. */
	sendSignalKey(key: string, name: string, data?: Json, board?: string): void;
	/** Writes a line for `conductord job logs`. */
	log(line: string): void;
	/** For a revert: the result of the execution, its failure, and the failures of all steps. */
	readonly result: any;
	readonly failure: WireFailure | undefined;
	readonly failures: readonly WireFailure[];
	/** For a revert: why the step is reverted. */
	readonly cause: RevertCause | undefined;
}

/** A type of step. */
export interface StepType<A = any> {
	execute(args: A, ctx: StepContext): unknown;
	/** Undoes the step under the name of another type, with the same arguments. It is not called for a step whose arguments `schema` refused. */
	revert?: { type: string; run(args: A, ctx: StepContext): unknown };
	/** Checks the arguments, and throws if they are wrong, like the parse of a zod schema. Its error is a permanent failure `bad_argument`. */
	schema?: (args: unknown) => A;
}

export interface FailureOptions {
	/** The kind of the failure, for retry policies and people; default: `error`. */
	kind?: string;
	/** Whether the failure forbids another attempt. */
	permanent?: boolean;
	details?: Record<string, Json>;
	code?: number;
	cause?: unknown;
}

/** Throw it to fail the step with this kind. Other errors are failures of the kind `error`. */
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

/** Throw it to run the step again after these milliseconds, by any worker, without counting an attempt. */
export class NotYet extends Error {
	constructor(readonly after: number, readonly details?: Json) {
		super(`not yet: run again in ${after} ms`);
		this.name = "NotYet";
	}
}

/** The result of make, or a default. A step can throw any value, and its getters, its toString and proxy traps can throw too. */
function tried<T>(make: () => T, otherwise: T): T {
	try {
		return make();
	} catch {
		return otherwise;
	}
}

const isA = (value: unknown, type: new (...of: never[]) => object): boolean => tried(() => value instanceof type, false);
const read = (value: any, field: string): unknown => tried(() => value[field], undefined);
const whole = (value: unknown): string => inspect(value, { customInspect: false, depth: 3, breakLength: Infinity });
const textOf = (value: unknown): string =>
	tried(() => (["object", "function"].includes(typeof value) ? whole(value) : String(value)), "a value that cannot be read");

/** The description of a thrown value. It never throws. */
export function messageOf(thrown: unknown): string {
	if (!isA(thrown, Error)) {
		return `the step has thrown ${textOf(thrown)}`;
	}
	const message = read(thrown, "message");
	return textOf(message === undefined || message === "" ? (read(thrown, "name") ?? "Error") : message);
}

/** The end of an attempt whose step has thrown this value. It never throws. */
export function endOf(thrown: unknown): Omit<Report, "id"> {
	if (!isA(thrown, NotYet)) {
		return failureOf(thrown);
	}
	try {
		const { after, details } = thrown as NotYet;
		return { not_yet: seconds(Math.max(1, after)), ...(details === undefined ? {} : { progress: { details: plain(details) } }) };
	} catch (problem) {
		return failureOf(new Failure(`cannot report "not yet": ${messageOf(problem)}`, { permanent: true }));
	}
}

/** The failure on the wire for a thrown value. It never throws. */
export function failureOf(thrown: unknown): { failure: WireFailure; stderr?: string } {
	if (!isA(thrown, Failure)) {
		const stack = isA(thrown, Error) ? read(thrown, "stack") : undefined;
		const failure = { kind: "error", message: clip(messageOf(thrown), maxMessage) };
		return typeof stack === "string" && stack !== "" ? { failure, stderr: clip(stack, maxStderr) } : { failure };
	}
	const kind = clip(textOf(read(thrown, "kind") ?? "error").replace(/\p{Cc}/gu, " "), maxKind) || "error";
	const message = clip(read(thrown, "message") === "" ? kind : messageOf(thrown), maxMessage);
	const failure: WireFailure = { kind, message, permanent: Boolean(read(thrown, "permanent")) };
	const [code, details] = [read(thrown, "code") as number, read(thrown, "details")];
	if (Number.isInteger(code) && (code | 0) === code) {
		failure.code = code;
	}
	if (details !== undefined) {
		failure.details = tried(() => plain(details) as Record<string, Json>, { details: "left out: JSON cannot hold them" });
	}
	return { failure };
}

/** A key that is equal for all spellings of one attempt. */
export const nameOf = (id: AttemptID): string => [id.flow, id.action, id.attempt, id.asked ?? 0, id.step].join(" ");
