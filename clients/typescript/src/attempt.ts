import { EventEmitter, once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { keyWait, missingKey } from "./encrypted.js";
import { RefusedError } from "./errors.js";
import { linked } from "./http.js";
import { encode, clip, type Json, milliseconds, plain, seconds } from "./json.js";
import type { Session } from "./session.js";
import { endOf, Failure, messageOf, nameOf, NotYet, type Report, type Sending, type StepContext, type StepType, type Work } from "./steps.js";
import type { Failure as WireFailure } from "./types.js";

/** How often progress and lines are reported, and how long such a report waits for a conductor. */
const tellEvery = 500;
const tellWait = 2_000;
/** The time that one report of an end waits for its record. */
const reportWait = 10_000;
/** The details of progress, in bytes of JSON. */
const maxDetails = 16 << 10;
/** The lines of one report. */
const maxOutput = 64 << 10;
const cutMark = "\n[more was written than a report holds]\n";
const badArgument = "bad_argument";
const firstPause = 50;
const lastPause = 2_000;

/** Bounds the parallel attempts. The leader can send more attempts than free slots while it records earlier offers. */
export class Slots {
	readonly #freed = new EventEmitter().setMaxListeners(0);
	#free: number;

	constructor(count: number) {
		this.#free = count;
	}

	/** Waits for a slot, and resolves to the function that frees it. Rejects when the signal is aborted. */
	async take(signal: AbortSignal): Promise<() => void> {
		while (this.#free === 0 && !signal.aborted) {
			await once(this.#freed, "slot", { signal }).catch(() => {}); // wakes all that wait
		}
		signal.throwIfAborted();
		this.#free--;
		return () => {
			this.#free++;
			this.#freed.emit("slot");
		};
	}
}

/** An attempt that the worker holds and whose end is not recorded. */
export class Attempt {
	stopping = false;
	readonly #end = new AbortController();
	#output = "";
	#bytes = 0;
	#cut = false;
	#progress: Report["progress"];
	#over = false; // the step has returned
	#number = 0; // of the latest checkpoint
	#recording: Promise<void> = Promise.resolve();
	readonly #sends: Sending[] = [];
	readonly #checkpoints: Map<string, Json>;

	constructor(readonly session: Session, readonly work: Work, readonly step: StepType | undefined, readonly slots: Slots, readonly warn: (message: string) => void) {
		this.#checkpoints = new Map((work.checkpoints ?? []).map(({ name, value }) => [name, value ?? null]));
	}

	/** Ends the attempt at the conductor's request. */
	stop(): void {
		this.stopping = true;
		this.#end.abort(new Error("the conductor has ended the attempt"));
	}

	/** Runs the attempt. Reports its end until the cluster has recorded or refused it, or the session is over. */
	async run(): Promise<void> {
		if (!(await this.session.admits())) {
			return;
		}
		const left = this.work.time_left === undefined ? undefined : milliseconds(this.work.time_left);
		const time = new AbortController();
		const timer = left === undefined ? undefined : setTimeout(() => time.abort(new Error("the time of the attempt has ended")), Math.min(left, 2 ** 31 - 1));
		let told = Promise.resolve();
		const telling = setInterval(() => (told = told.then(() => this.#tell())), tellEvery);
		const ends = linked(this.#end.signal, time.signal, this.session.lost);
		const outcome = await this.#act(this.#context(ends.signal, left));
		this.#over = true;
		ends.unlink();
		clearInterval(telling);
		clearTimeout(timer);
		await told; // lines after the end would be refused
		if (!this.session.lost.aborted) { // otherwise the attempt has ended with its session
			await this.#report({ ...this.#news(), ...outcome });
		}
	}

	async #act(ctx: StepContext): Promise<Report> {
		const id = this.work.id;
		const step = this.step;
		let free = () => {};
		try {
			if (step === undefined) {
				throw new Failure(`this worker cannot ${id.action} steps of the type ${JSON.stringify(this.work.type)}`, { permanent: true });
			}
			free = await this.slots.take(ctx.signal);
			const missing = missingKey(this.work);
			if (missing !== undefined) {
				this.warn(`conductord worker: step ${JSON.stringify(id.step)} is not started: ${missing}`);
				ctx.log(`not started: ${missing}`);
				throw new NotYet(keyWait(this.work)); // no failure: a worker with the key can get the attempt next
			}
			let args: unknown;
			try {
				args = step.schema ? step.schema(this.work.arguments ?? {}) : (this.work.arguments ?? {});
			} catch (problem) {
				if (ctx.action === "revert" && ctx.failure?.kind === badArgument) {
					return { id, done: true, result: null }; // the step never executed: nothing to undo
				}
				throw new Failure(`the arguments do not fit the step: ${messageOf(problem)}`, { kind: badArgument, permanent: true });
			}
			if (ctx.action === "revert") {
				await step.revert!.run(args, ctx);
				return { id, done: true, result: null };
			}
			const result = (await step.execute(args, ctx)) ?? null;
			const sends = this.#sends;
			try {
				return { id, done: true, result: plain(result), ...(sends.length === 0 ? {} : { sends }) };
			} catch (problem) {
				throw new Failure(`cannot report the result: ${messageOf(problem)}`, { permanent: true });
			}
		} catch (thrown) {
			return { id, done: true, ...endOf(thrown) };
		} finally {
			free();
		}
	}

	#context(signal: AbortSignal, left: number | undefined): StepContext {
		const { id, type, job, key, round, try: tried, tries, token, result, failure, failures, last_failure: lastFailure, last_progress: last, cause } = this.work;
		const checkpoints = this.#checkpoints;
		const checkpoint = (name: string, value: Json = null) => this.#checkpoint(name, value);
		const deadline = left === undefined ? undefined : new Date(Date.now() + left);
		const end = left === undefined ? undefined : performance.now() + left;
		return {
			type, job, flow: id.flow, step: id.step, action: id.action, attempt: id.attempt, asked: id.asked ?? 0, round: round ?? 0, try: tried ?? 1, tries: tries ?? 1, key, token,
			signal, deadline, result, failure, failures: failures ?? [], lastFailure, cause,
			timeLeft: () => (end === undefined ? undefined : Math.max(0, end - performance.now())),
			progress: (done, total = 0, details) => this.#note(done, total, details),
			log: (line) => this.#write(line),
			lastProgress: last && { done: Number(last.done ?? 0), total: Number(last.total ?? 0), ...(last.details === undefined ? {} : { details: last.details }) },
			get checkpoints() {
				return Object.fromEntries(checkpoints);
			},
			checkpoint,
			sendSignal: (to: string, name: string, data: Json = null) => void this.#sends.push({ job: to, signal: { name, data: plain(data) } }),
			sendSignalKey: (to: string, name: string, data: Json = null, board = "") => void this.#sends.push({ key: to, board, signal: { name, data: plain(data) } }),
			once: async <T extends Json>(name: string, run: () => T | Promise<T>) => {
				if (!checkpoints.has(name)) {
					await checkpoint(name, await run());
				}
				return checkpoints.get(name) as T;
			},
		};
	}

	/** Records one checkpoint at a time, in the order of their numbers. */
	async #checkpoint(name: string, value: Json): Promise<void> {
		const kept = plain(value);
		const record = this.#recording.then(() => this.#record(name, kept));
		this.#recording = record.catch(() => {});
		await record;
		this.#checkpoints.set(name, kept);
	}

	/** Reports a checkpoint until it is recorded or refused, or the attempt is over. */
	async #record(name: string, value: Json): Promise<void> {
		const over = `cannot record the checkpoint ${JSON.stringify(name)}: the attempt is over`;
		const progress = this.#progress;
		this.#progress = undefined;
		// Each checkpoint has its own number, even after an error: a late repeat of a report changes nothing.
		const report = { id: this.work.id, checkpoint: { name, value, number: ++this.#number }, ...(progress === undefined ? {} : { progress }) };
		for (let pause = firstPause; !this.#over && !this.session.lost.aborted; ) {
			try {
				if (await this.#send(report, reportWait)) {
					return;
				}
				continue;
			} catch (error) {
				const code = error instanceof RefusedError ? error.code : "";
				if (code === "session_expired") {
					this.session.lose(error);
				} else if (code === "invalid" || code === "over_limit") {
					throw error;
				} else if (code !== "") {
					this.stop();
					throw new Error(`${over}: ${(error as Error).message}`, { cause: error });
				} else {
					await delay(pause * (0.5 + Math.random()), undefined, { signal: this.session.lost }).catch(() => {});
					pause = Math.min(lastPause, pause * 2);
				}
			}
		}
		throw new Error(over);
	}

	#note(done: number, total: number, details: Json | undefined): void {
		const [at, of] = [Math.floor(done), Math.floor(total)];
		// A report with faulty progress would be refused as a whole. The step gets the exception instead.
		if (!(at >= 0 && of >= 0 && (of === 0 || at <= of) && Number.isSafeInteger(at) && Number.isSafeInteger(of))) {
			throw new RangeError(`progress is ${done} of ${total}; it must be 0 or more, and at most the total`);
		}
		const kept = details === undefined ? {} : { details: plain(details) };
		const size = Buffer.byteLength(encode(kept.details ?? null));
		if (size > maxDetails) {
			throw new RangeError(`the details of progress are ${size} bytes of JSON, and the limit is ${maxDetails}`);
		}
		this.#progress = { done: at, total: of, ...kept };
	}

	#write(line: string): void {
		const left = maxOutput - cutMark.length - this.#bytes;
		const text = line.endsWith("\n") ? line : `${line}\n`;
		const fits = clip(text, Math.max(0, left));
		this.#cut ||= fits.length < text.length;
		this.#output += fits;
		this.#bytes += Buffer.byteLength(fits);
	}

	/** The unreported progress and lines. */
	#news(): Pick<Report, "output" | "progress"> {
		const output = this.#output + (this.#cut ? cutMark : "");
		const progress = this.#progress;
		this.#output = "";
		this.#bytes = 0;
		this.#cut = false;
		this.#progress = undefined;
		return { ...(output === "" ? {} : { output }), ...(progress === undefined ? {} : { progress }) };
	}

	/** Reports progress and lines once. A failed report is not repeated. */
	async #tell(): Promise<void> {
		const news = this.#news();
		if (news.output === undefined && news.progress === undefined) {
			return;
		}
		try {
			await this.#send({ id: this.work.id, ...news }, tellWait);
		} catch (error) {
			if (error instanceof RefusedError && error.code !== "fenced" && error.code !== "session_expired") {
				this.warn(`conductord worker: ${nameOf(this.work.id)}: ${error.message}`);
			}
		}
	}

	async #send(outcome: Report, wait: number): Promise<boolean> {
		const request = { session: this.session.id, outcome, wait: seconds(wait) };
		const options = { signal: this.session.lost, name: "report the step", reads: true, wait, timeout: wait };
		return (await this.session.client.call<{ recorded?: boolean }>("WorkerService/Report", request, options)).recorded === true;
	}

	/** Reports the end until it is recorded or refused. */
	async #report(given: Report): Promise<void> {
		let outcome = given;
		for (let pause = firstPause; !this.session.lost.aborted; ) {
			try {
				if (await this.#send(outcome, reportWait)) {
					return;
				}
				continue;
			} catch (error) {
				const code = error instanceof RefusedError ? error.code : "";
				if (code === "session_expired") {
					this.session.lose(error);
				} else if ((code === "invalid" || code === "over_limit") && outcome === given) {
					outcome = { id: given.id, done: true, failure: refused(given.failure, error as RefusedError) };
					continue;
				} else if (code === "fenced") {
					return; // also for a recorded failure, when the revert of the step has started
				} else if (code !== "") {
					this.warn(`conductord worker: the end of ${nameOf(given.id)} is refused: ${(error as Error).message}`);
					return;
				} else {
					await delay(pause * (0.5 + Math.random()), undefined, { signal: this.session.lost }).catch(() => {});
					pause = Math.min(lastPause, pause * 2);
				}
			}
		}
	}
}

/** The failure to report if the node refuses the end. A failure keeps its kind and loses its details. */
function refused(failure: WireFailure | undefined, error: RefusedError): WireFailure {
	if (failure === undefined) {
		return { kind: error.code === "over_limit" ? error.code : "error", message: clip(error.message, 4 << 10), permanent: true };
	}
	const { kind = "error", message = "", permanent = false } = failure;
	return { kind, message: clip(`${clip(message, 2 << 10)} (the node refuses the whole failure: ${error.message})`, 4 << 10), permanent };
}
