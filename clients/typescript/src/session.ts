import { setMaxListeners } from "node:events";
import { hostname, uptime } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "./client.js";
import { ConductordError, RefusedError } from "./errors.js";
import { newID } from "./ids.js";
import { seconds } from "./json.js";

/** One try of a keep-alive. */
const keepAliveTime = 1_000;
const closeTime = 3_000;

/**
 * A moment to measure from. performance.now stops while the machine is suspended. On Linux, uptime does
 * not stop, but may count in whole seconds.
 */
export class Moment {
	readonly #precise = performance.now();
	readonly #boot = uptime();

	/** Milliseconds since then. */
	elapsed(): number {
		return Math.max(performance.now() - this.#precise, (uptime() - this.#boot - 1) * 1000);
	}
}

export interface Entity {
	name: string;
	job_kinds: string[];
	labels: string[];
	boards: string[];
	max_jobs: number;
}

/**
 * A session that is kept alive. It counts from the sending time of the last acknowledged keep-alive:
 *
 *	0                       0.6             0.8            1.0 TTL
 *	├───────── sound ────────┼── doubtful ───┼──── lost ─────┤ other workers may get the attempts
 *	sent                     no attempt starts
 */
export class Session {
	readonly #lost = new AbortController();
	#renewed: Moment;
	#watch: NodeJS.Timeout | undefined;
	readonly #keeping: Promise<void>;

	private constructor(readonly client: Client, readonly id: string, readonly ttl: number, sent: Moment) {
		setMaxListeners(0, this.lost); // one for each call and attempt
		this.#renewed = sent;
		this.#look();
		this.#keeping = this.#keep();
	}

	/** Opens a session and registers a worker. */
	static async open(client: Client, entity: Entity, ttl: number, signal: AbortSignal): Promise<Session> {
		const id = newID();
		const sent = new Moment();
		const options = { signal, timeout: ttl };
		const process_ = { host: hostname(), pid: process.pid };
		await client.call("SessionService/Open", { opening: { id, name: entity.name, ttl: seconds(ttl), ...process_ } }, { ...options, name: "open a session" });
		await client.call("SessionService/Register", { session: id, entity: { kind: "step_worker", ...entity, ...process_ } }, { ...options, name: "register the worker" });
		return new Session(client, id, ttl, sent);
	}

	/** Aborted when the attempts under the session must end. */
	get lost(): AbortSignal {
		return this.#lost.signal;
	}

	lose(reason: unknown): void {
		clearTimeout(this.#watch);
		this.#lost.abort(reason);
	}

	/** Waits until an attempt may start; false: the session is lost. */
	async admits(): Promise<boolean> {
		while (!this.lost.aborted && this.#renewed.elapsed() >= this.ttl * 0.6) {
			await delay(20);
		}
		return !this.lost.aborted;
	}

	/** Ends the session when 0.8 of its TTL is over without an acknowledged keep-alive. */
	#look(): void {
		const left = this.ttl * 0.8 - this.#renewed.elapsed();
		if (left <= 0) {
			this.lose(new Error("the session could not be renewed in time: its attempts are stopped before it can expire"));
			return;
		}
		this.#watch = setTimeout(() => this.#look(), left);
	}

	async #keep(): Promise<void> {
		while (!this.lost.aborted) {
			const sent = new Moment();
			try {
				const options = { signal: this.lost, timeout: this.ttl / 5, try: Math.min(keepAliveTime, this.ttl / 5), name: "keep the session alive", reads: true };
				await this.client.call("SessionService/KeepAlive", { session: this.id }, options);
				this.#renewed = sent;
			} catch (error) {
				if (error instanceof RefusedError && error.code === "session_expired") {
					this.lose(error);
				}
			}
			await delay(Math.max(50, this.ttl / 5 - sent.elapsed()), undefined, { signal: this.lost }).catch(() => {});
		}
	}

	/** Closes the session: other workers get its attempts at once. It may be called twice. */
	async close(): Promise<void> {
		this.lose(new Error("the session is closed"));
		await this.#keeping;
		try {
			await this.client.call("SessionService/Close", { session: this.id }, { timeout: closeTime, name: "close the session" });
		} catch (error) {
			if (!(error instanceof ConductordError)) {
				throw error;
			}
			// It expires by itself.
		}
	}
}
