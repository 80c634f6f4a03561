import * as http from "node:http";
import * as https from "node:https";
import { setTimeout as delay } from "node:timers/promises";
import { type ConductordError, errorFrom, RefusedError, UnavailableError, UncertainError } from "./errors.js";
import { decode, encode } from "./json.js";

/** The size limit of an answer, 4 MiB: a larger answer does not come from a node. */
const maxAnswer = 8 << 20;
/** The time of one try of a call, as in the Go client. A longer call is repeated at another node. */
const tryTime = 3_000;
/** The extra time for the answer to a long poll, after its wait. */
const pollGrace = 5_000;
const firstPause = 50;
const lastPause = 1_000;
/** The time for which an unreachable address of the leader is not tried again. */
const shunTime = 10_000;

export interface CallOptions {
	/** Ends the call. Its reason is thrown, or an UncertainError if the call may have happened. */
	signal?: AbortSignal | undefined;
	/** The time of all tries, in milliseconds; default: the client's. */
	timeout?: number | undefined;
}

/** The properties of a call that decide about repeats. */
export interface Operation {
	/** The verb in the error "cannot …". */
	name: string;
	/** The call changes nothing, or its repeat has an unambiguous result. */
	reads?: boolean;
	/** For a long poll: the requested wait, in milliseconds. */
	wait?: number;
	/** The time of one try, in milliseconds. */
	try?: number;
}

export interface TransportOptions {
	servers: string[];
	token?: string | undefined;
	ca?: string | Buffer | undefined;
	cert?: string | Buffer | undefined;
	key?: string | Buffer | undefined;
	timeout: number;
}

/** The URL of an endpoint. Without a scheme it is https if certificates are set. */
export function baseURL(endpoint: string, secure: boolean): string {
	const text = endpoint.includes("://") ? endpoint : `${secure ? "https" : "http"}://${endpoint}`;
	const url = URL.canParse(text) ? new URL(text) : undefined;
	if (url === undefined || !/^https?:$/.test(url.protocol) || url.username || url.pathname !== "/" || url.search || url.hash) {
		throw new RefusedError("invalid", `the server ${JSON.stringify(endpoint.slice(0, 128))} is not host:port, or http or https with these`, { field: "servers" });
	}
	return url.origin;
}

/**
 * A controller that is aborted with any of the signals. AbortSignal.any of Node 20 would keep memory for
 * each call until the session ends.
 */
export function linked(...signals: (AbortSignal | undefined)[]): AbortController & { unlink(): void } {
	const controller = new AbortController();
	const links = signals.map((signal) => whenAborted(signal, () => controller.abort(signal?.reason)));
	return Object.assign(controller, { unlink: () => links.forEach((unlink) => unlink()) });
}

/** Calls a function when a signal is aborted, or at once if it is. The returned function cancels this. */
export function whenAborted(signal: AbortSignal | undefined, call: () => void): () => void {
	signal?.aborted ? call() : signal?.addEventListener("abort", call);
	return () => signal?.removeEventListener("abort", call);
}

/** One exchange that has failed. `sent` is false when no connection was made. */
class ExchangeError extends Error {
	constructor(readonly problem: unknown, readonly sent: boolean) {
		super(problem instanceof Error ? problem.message || String((problem as { code?: string }).code) : String(problem));
	}
}

/** Finds a node that answers, and repeats calls until a node answers. */
export class Transport {
	readonly #servers: string[];
	readonly #secure: boolean;
	readonly #options: TransportOptions;
	readonly #agents: { "http:": http.Agent; "https:": https.Agent };
	#current = 0;
	#leader: string | undefined;
	#shunned = new Map<string, number>();

	constructor(options: TransportOptions) {
		this.#options = options;
		this.#secure = options.ca !== undefined || options.cert !== undefined;
		this.#servers = [...new Set(options.servers.map((server) => baseURL(server, this.#secure)))];
		const plain = options.token ? this.#servers.find((server) => !server.startsWith("https:")) : undefined;
		if (plain !== undefined) {
			throw new RefusedError("invalid", `a token would be sent to ${plain} in plain text: name the server with https://, or give the ca`, { field: "token" });
		}
		const { ca, cert, key } = options;
		this.#agents = {
			"http:": new http.Agent({ keepAlive: true }),
			"https:": new https.Agent({ keepAlive: true, ca, cert, key, minVersion: "TLSv1.3" }),
		};
	}

	/** Repeats a call until a node answers, or its time is over. */
	async call<T>(operation: Operation, path: string, request: unknown, options: CallOptions = {}): Promise<T> {
		const body = encode(request);
		const limit = operation.try ?? (operation.wait === undefined ? tryTime : operation.wait + pollGrace);
		const deadline = performance.now() + Math.max(options.timeout ?? this.#options.timeout, operation.wait ?? 0);
		let uncertain = false;
		const failures = new Map<string, string>();
		const tried = new Set<string>();
		for (let pause = firstPause; ; ) {
			const server = this.#pick(tried);
			tried.add(server);
			let after = 0;
			try {
				return (await this.#exchange(server, path, body, limit, options.signal)) as T;
			} catch (failed) {
				const { error, retryAfter, sent } = this.#classify(server, failed);
				if (error instanceof RefusedError || error.code === "internal") {
					error.message = `cannot ${operation.name}: ${error.message}`;
					throw error;
				}
				uncertain ||= sent && error instanceof UncertainError;
				failures.set(server, error.message);
				after = retryAfter;
				if (error.code === "overloaded") {
					this.#servers.forEach((each) => tried.add(each)); // another node would only ask the same leader
				}
			}
			const aborted = options.signal?.aborted === true;
			if (aborted || performance.now() >= deadline) {
				throw this.#giveUp(operation, uncertain, failures, aborted ? options.signal : undefined);
			}
			if (this.#servers.every((each) => tried.has(each))) {
				tried.clear();
				await delay(Math.max(after, pause * (0.5 + Math.random())), undefined, { signal: options.signal }).catch(() => {});
				pause = Math.min(lastPause, pause * 2);
			}
		}
	}

	#giveUp(operation: Operation, uncertain: boolean, failures: Map<string, string>, signal?: AbortSignal): unknown {
		if (signal && (operation.reads || !uncertain)) {
			return signal.reason;
		}
		const told = [...failures].map(([server, message]) => `${server}: ${message}`).join("; ");
		const message = `cannot ${operation.name}: ${signal ? "the caller has given up" : "the time is over"}: ${told}`;
		return uncertain && !operation.reads
			? new UncertainError("uncertain", message, {}, signal?.reason)
			: new UnavailableError("unavailable", message);
	}

	/** The leader first, then the servers in order, starting with the server that answered last. */
	#pick(tried: Set<string>): string {
		const leader = this.#leader;
		if (leader !== undefined && !tried.has(leader) && (this.#shunned.get(leader) ?? 0) <= performance.now()) {
			return leader;
		}
		for (let i = 0; i < this.#servers.length; i++) {
			const server = this.#servers[(this.#current + i) % this.#servers.length]!;
			if (!tried.has(server)) {
				return server;
			}
		}
		return this.#servers[this.#current]!;
	}

	#classify(server: string, failed: unknown): { error: ConductordError; retryAfter: number; sent: boolean } {
		if (failed instanceof Refusal) {
			if (failed.error.code === "unavailable") {
				this.#passBy(server);
			}
			return { error: failed.error, retryAfter: failed.retryAfter, sent: true };
		}
		const { message, sent } = failed instanceof ExchangeError ? failed : new ExchangeError(failed, true);
		if (!sent) {
			this.#shunned.set(server, performance.now() + shunTime);
		}
		this.#passBy(server);
		return { error: sent ? new UncertainError("uncertain", message) : new UnavailableError("unavailable", message), retryAfter: 0, sent };
	}

	#passBy(server: string): void {
		if (this.#leader === server) {
			this.#leader = undefined;
		}
		if (this.#servers[this.#current] === server) {
			this.#current = (this.#current + 1) % this.#servers.length;
		}
	}

	/** One call at one node: the answer, or a Refusal or ExchangeError is thrown. */
	async #exchange(server: string, path: string, body: string, limit: number, signal?: AbortSignal): Promise<unknown> {
		const bounded = linked(signal);
		const timer = setTimeout(() => bounded.abort(new Error(`no answer within ${limit} ms`)), limit);
		try {
			const answer = await this.#request(server, path, body, bounded.signal);
			let size = 0;
			const parts: Buffer[] = [];
			for await (const part of answer as AsyncIterable<Buffer>) {
				parts.push(part);
				if ((size += part.length) > maxAnswer) {
					throw new Error(`the answer has more than ${maxAnswer} bytes`);
				}
			}
			return this.#read(answer, Buffer.concat(parts).toString());
		} catch (problem) {
			throw problem instanceof Refusal || problem instanceof ExchangeError ? problem : new ExchangeError(problem, true);
		} finally {
			clearTimeout(timer);
			bounded.unlink();
		}
	}

	#read(answer: http.IncomingMessage, text: string): unknown {
		const status = answer.statusCode ?? 0;
		if (status === 200) {
			return decode(text);
		}
		let body: unknown;
		try {
			body = decode(text);
		} catch {
			body = { code: status >= 400 && status < 500 ? "invalid_argument" : "", message: `the answer has the HTTP status ${status}: ${text.slice(0, 200).trim()}` };
		}
		const wait = Number(answer.headers["retry-after"] ?? 0) * 1000;
		throw new Refusal(errorFrom(status, body), Math.min(5_000, wait || 0));
	}

	#request(server: string, path: string, body: string, signal: AbortSignal): Promise<http.IncomingMessage> {
		const url = new URL(`/conductord.v1.${path}`, server);
		const headers: http.OutgoingHttpHeaders = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
		if (this.#options.token) {
			headers["authorization"] = `Bearer ${this.#options.token}`;
		}
		const secure = url.protocol === "https:";
		return new Promise((resolve, reject) => {
			let sent = false;
			const request = (secure ? https : http).request(url, { method: "POST", headers, signal, agent: this.#agents[secure ? "https:" : "http:"] });
			request.on("socket", (socket) => {
				sent = !socket.connecting;
				if (!sent) {
					socket.once(secure ? "secureConnect" : "connect", () => (sent = true));
				}
			});
			request.on("response", (answer) => {
				const hint = answer.headers["conductord-leader"];
				if (typeof hint === "string" && hint !== "") {
					this.#learn(hint, url.protocol);
				}
				resolve(answer);
			});
			request.on("error", (problem) => reject(new ExchangeError(problem, sent)));
			request.end(body);
		});
	}

	#learn(hint: string, protocol: string): void {
		const leader = `${protocol}//${hint}`;
		this.#leader = URL.canParse(leader) ? new URL(leader).origin : undefined;
	}

	/** Reads the lines of a stream at one node after another, until it is refused or the signal ends it. */
	async *lines(operation: Operation, path: string, request: () => unknown, idle: number, signal?: AbortSignal): AsyncGenerator<unknown> {
		let pause = firstPause;
		while (!signal?.aborted) {
			const server = this.#pick(new Set());
			const silent = linked(signal);
			let timer: NodeJS.Timeout | undefined;
			const alive = () => {
				clearTimeout(timer);
				timer = setTimeout(() => silent.abort(new Error("the node is silent")), idle);
			};
			try {
				alive();
				const answer = await this.#request(server, path, encode(request()), silent.signal);
				if (answer.statusCode !== 200) {
					this.#read(answer, Buffer.concat(await answer.toArray()).toString());
				}
				let rest = "";
				answer.setEncoding("utf8");
				for await (const part of answer as AsyncIterable<string>) {
					alive();
					pause = firstPause;
					const lines = (rest + part).split("\n");
					rest = lines.pop()!;
					for (const line of lines) {
						const message = decode(line) as { error?: unknown };
						if (message.error !== undefined) {
							throw new Refusal(errorFrom(200, message.error), 0);
						}
						yield message;
					}
				}
			} catch (failed) {
				if (signal?.aborted) {
					break;
				}
				const { error } = this.#classify(server, failed);
				if (error instanceof RefusedError) {
					error.message = `cannot ${operation.name}: ${error.message}`;
					throw error;
				}
			} finally {
				clearTimeout(timer);
				silent.unlink();
				silent.abort();
			}
			await delay(pause * (0.5 + Math.random()), undefined, { signal }).catch(() => {});
			pause = Math.min(lastPause, pause * 2);
		}
		throw signal!.reason;
	}

	close(): void {
		this.#agents["http:"].destroy();
		this.#agents["https:"].destroy();
	}
}

/** A node has answered with an error. */
class Refusal extends Error {
	constructor(readonly error: ConductordError, readonly retryAfter: number) {
		super(error.message);
	}
}
