import { once } from "node:events";
import { hostname } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { Attempt, Slots } from "./attempt.js";
import type { Client } from "./client.js";
import { RefusedError } from "./errors.js";
import { linked, whenAborted } from "./http.js";
import { seconds } from "./json.js";
import { type Entity, Session } from "./session.js";
import { type AttemptID, nameOf, type StepType, type Work } from "./steps.js";

const maxSlots = 1024;
const pullWait = 30_000;
const lastWait = 500; // what was promised to the pull before is recorded by then, as a rule
/** The time for which steps that ignore their signal can delay the end of a stopping worker. */
const grace = 10_000;
const firstPause = 50;
const lastPause = 2_000;

export interface WorkerOptions {
	/** The worker's name, for people; default: the host and the process id. */
	name?: string;
	labels?: string[];
	/** Parallel attempts, 1 to 1,024; 4. */
	slots?: number;
	/** The boards that the worker serves; default: all. */
	boards?: string[];
	/** How long a stopping worker waits for its running attempts, in milliseconds; default: no limit. */
	drainTimeout?: number;
	/** The TTL of its session, in milliseconds; 15,000. After 0.8 of the TTL without an acknowledged keep-alive, attempts are stopped. */
	ttl?: number;
	/** The signals that start a graceful stop; SIGTERM and SIGINT. */
	signals?: NodeJS.Signals[];
	/** Receives messages for people, for example that the cluster is unreachable; console.error. */
	warn?: (message: string) => void;
}

/** Runs steps of flows. */
export class Worker {
	readonly #client: Client;
	readonly #options: Required<Omit<WorkerOptions, "drainTimeout">> & { drainTimeout: number | undefined };
	readonly #steps = new Map<string, StepType>();
	readonly #reverts = new Map<string, StepType>();
	readonly #held = new Map<string, Attempt>();
	readonly #slots: Slots;
	readonly #stop = new AbortController();
	/** Ends a pull that asks for no attempts, when a slot is free. */
	#wake: AbortController | undefined;

	constructor(client: Client, options: WorkerOptions = {}) {
		this.#client = client;
		this.#options = {
			name: options.name ?? `${hostname()}:${process.pid}`, labels: options.labels ?? [], slots: options.slots ?? 4, boards: options.boards ?? [],
			drainTimeout: options.drainTimeout, ttl: options.ttl ?? 15_000, signals: options.signals ?? ["SIGTERM", "SIGINT"],
			warn: options.warn ?? ((message) => console.error(message)),
		};
		const { slots, ttl } = this.#options;
		if (!Number.isInteger(slots) || slots < 1 || slots > maxSlots) {
			throw new RefusedError("over_limit", `slots is ${slots}; it must be 1 to ${maxSlots}`, { field: "slots", limit: maxSlots });
		}
		if (!(ttl >= 500 && ttl <= 3_600_000)) {
			throw new RefusedError("invalid", `ttl is ${ttl}; it must be 500 to 3,600,000 milliseconds`, { field: "ttl" });
		}
		this.#slots = new Slots(slots);
	}

	/** Offers a type of step, and the type that undoes it. */
	step<A = any>(type: string, step: StepType<A>): this {
		if (this.#steps.has(type)) {
			throw new RefusedError("invalid", `the type of step ${JSON.stringify(type)} is there already`, { field: "type" });
		}
		this.#steps.set(type, step);
		if (step.revert) {
			this.#reverts.set(step.revert.type, step);
		}
		return this;
	}

	/** Takes no new attempts. `run` resolves when the running attempts have ended. */
	stop(): void {
		this.#stop.abort(new Error("the worker stops"));
	}

	/** Runs steps until the worker is stopped. Errors of the cluster do not end it. It rejects if the cluster refuses the worker. */
	async run(signal?: AbortSignal): Promise<void> {
		const stop = () => this.stop();
		this.#options.signals.forEach((name) => process.on(name, stop));
		const unlink = whenAborted(signal, stop);
		try {
			let pause = firstPause;
			while (!this.#stop.signal.aborted) {
				let session: Session;
				try {
					session = await Session.open(this.#client, this.#entity(), this.#options.ttl, this.#stop.signal);
				} catch (error) {
					if (error instanceof RefusedError && error.code !== "session_expired") {
						throw error;
					}
					pause = await this.#pause("open a session", error, pause, this.#stop.signal);
					continue;
				}
				pause = firstPause;
				await this.#serve(session);
			}
		} finally {
			this.#options.signals.forEach((name) => process.off(name, stop));
			unlink();
		}
	}

	#entity(): Entity {
		const { name, labels, boards, slots } = this.#options;
		return { name, labels, boards, job_kinds: [...new Set([...this.#steps.keys(), ...this.#reverts.keys()])].sort(), max_jobs: slots };
	}

	async #pause(what: string, error: unknown, pause: number, signal: AbortSignal): Promise<number> {
		if (!signal.aborted) {
			this.#options.warn(`conductord worker: cannot ${what} now: ${error instanceof Error ? error.message : String(error)}`);
			await delay(pause * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
		}
		return Math.min(lastPause, pause * 2);
	}

	/** Runs steps under a session until the session is lost, or the worker stops and holds nothing. All attempts have ended when it returns. */
	async #serve(session: Session): Promise<void> {
		const attempts = new Set<Promise<void>>();
		let timer: NodeJS.Timeout | undefined;
		const drain = () => {
			this.#wake?.abort();
			if (this.#options.drainTimeout !== undefined) {
				timer = setTimeout(() => session.lose(new Error("the worker stops, and its time to drain is over")), this.#options.drainTimeout);
			}
		};
		const unlink = whenAborted(this.#stop.signal, drain);
		for (let pause = firstPause, last = false; !session.lost.aborted && !(last && this.#held.size === 0); ) {
			try {
				const pulled = await this.#pull(session);
				pause = firstPause;
				last = pulled.last ?? false;
				for (const work of pulled.work ?? []) {
					if (!this.#held.has(nameOf(work.id))) {
						const done = this.#take(session, work).finally(() => attempts.delete(done));
						attempts.add(done);
					}
				}
				pulled.stop?.forEach((id) => this.#held.get(nameOf(id))?.stop());
			} catch (error) {
				if (error instanceof RefusedError && error.code === "session_expired") {
					session.lose(error);
				} else {
					pause = await this.#pause("ask for steps", error, pause, session.lost);
					last = this.#stop.signal.aborted;
				}
			}
		}
		unlink();
		clearTimeout(timer);
		if (session.lost.aborted) {
			this.#options.warn(`conductord worker: the session is over, and its attempts are stopped: ${session.lost.reason?.message}`);
		}
		await this.#ended(attempts);
		await session.close();
	}

	/**
	 * Waits for the attempts of an ended session. A new session must wait for them: it could get the same step again and run it twice in
	 * this process.
	 */
	async #ended(attempts: Set<Promise<void>>): Promise<void> {
		const all = Promise.all(attempts);
		if (!this.#stop.signal.aborted) {
			await Promise.race([all, once(this.#stop.signal, "abort")]);
		}
		const timer = new AbortController();
		const late = delay(grace, true, { signal: timer.signal }).catch(() => false);
		if (await Promise.race([all.then(() => false), this.#stop.signal.aborted ? late : all.then(() => false)])) {
			this.#options.warn(`conductord worker: ${attempts.size} steps ignore their signal, and are left behind`);
		}
		timer.abort();
	}

	/**
	 * Asks for as many attempts as there are free slots. After a lost answer, the next call gets the same attempts again. No call follows
	 * the `last` call.
	 */
	async #pull(session: Session): Promise<{ work?: Work[]; stop?: AttemptID[]; last?: boolean }> {
		if (!(await session.admits())) {
			return {};
		}
		const last = this.#stop.signal.aborted;
		const slots = last ? 0 : Math.max(0, this.#options.slots - this.#held.size);
		const wait = last && this.#held.size === 0 ? lastWait : pullWait;
		const holds = [...this.#held.values()].map(({ work, stopping }) => ({ id: work.id, stopping }));
		const wake = (this.#wake = linked(session.lost));
		try {
			const options = { signal: wake.signal, name: "pull steps", reads: true, wait };
			return { ...(await this.#client.call<object>("WorkerService/Pull", { session: session.id, slots, holds, wait: seconds(wait) }, options)), last };
		} catch (error) {
			if (wake.signal.aborted) {
				return {};
			}
			throw error;
		} finally {
			wake.unlink();
			this.#wake = undefined;
		}
	}

	async #take(session: Session, work: Work): Promise<void> {
		const types = work.id.action === "revert" ? this.#reverts : this.#steps;
		const attempt = new Attempt(session, work, types.get(work.type), this.#slots, this.#options.warn);
		this.#held.set(nameOf(work.id), attempt);
		try {
			await attempt.run();
		} finally {
			const full = this.#held.size >= this.#options.slots;
			this.#held.delete(nameOf(work.id));
			if (full || this.#stop.signal.aborted) {
				this.#wake?.abort(); // it has asked for nothing
			}
		}
	}
}
