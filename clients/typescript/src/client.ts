import { readFileSync, statSync } from "node:fs";
import { errorOf, RefusedError, type WireError } from "./errors.js";
import { type CallOptions, type Operation, Transport } from "./http.js";
import { derivedID, newID } from "./ids.js";
import { type Json, seconds } from "./json.js";
import { bySymbol, type Flow } from "./results.js";
import type {
	Decision, DecisionReceipt, Event, FlowDetail, FlowDocument, Job, JobPage, JobQuery, Posted, Posting, SignalAnswer, Step, StepApproval, Values, WatchQuery,
} from "./types.js";

/** The maximum number of jobs in one call. */
const maxPostings = 1000;
/** The wait of one call. */
const pollTime = 30_000;
/** A node gives a sign of life every three seconds. */
const watchSilence = 10_000;

export interface ClientOptions {
	/** host:port, or a URL with http or https. CONDUCTORD_SERVER, or else 127.0.0.1:7070. */
	servers?: string | string[];
	/** CONDUCTORD_TOKEN, or else the content of the file CONDUCTORD_TOKEN_FILE. */
	token?: string;
	/** PEM, or the path of a file with it; read once. CONDUCTORD_CA_FILE, CONDUCTORD_CERT_FILE and CONDUCTORD_KEY_FILE. */
	ca?: string | Buffer;
	cert?: string | Buffer;
	key?: string | Buffer;
	/** The board of postings without a board; `default`. */
	board?: string;
	/** The time for which a call without a usable answer is repeated, in milliseconds; 30,000. */
	timeout?: number;
}

export interface Order {
	by?: string;
	reason?: string;
}

/** A connection to a cluster. Calls may run in parallel. */
export class Client {
	readonly #transport: Transport;
	readonly #board: string | undefined;

	constructor(options: ClientOptions = {}) {
		const env = process.env;
		const given = options.servers ?? env["CONDUCTORD_SERVER"] ?? "";
		const servers = (Array.isArray(given) ? given : given.split(",")).map((server) => server.trim()).filter((server) => server !== "");
		const timeout = options.timeout ?? 30_000;
		if (!(timeout > 0 && timeout < 2 ** 31)) {
			throw new RefusedError("invalid", `the timeout is ${timeout}; it must be a number of milliseconds above 0 and below 2^31`, { field: "timeout" });
		}
		if (env["CONDUCTORD_VALUE_KEYS"]) {
			const reason = "CONDUCTORD_VALUE_KEYS is set, and this client cannot encrypt values: unset it to send values in plain text";
			throw new RefusedError("invalid", reason, { field: "value_keys" });
		}
		this.#board = options.board;
		this.#transport = new Transport({
			servers: servers.length > 0 ? servers : ["127.0.0.1:7070"],
			token: options.token ?? tokenOf(env),
			ca: pem(options.ca ?? env["CONDUCTORD_CA_FILE"]),
			cert: pem(options.cert ?? env["CONDUCTORD_CERT_FILE"]),
			key: pem(options.key ?? env["CONDUCTORD_KEY_FILE"]),
			timeout,
		});
	}

	/** Makes any call of docs/protocol.md, such as `BoardService/Explain`, and repeats it until a node answers. */
	call<T = Record<string, unknown>>(path: string, request: object, options: CallOptions & Partial<Operation> = {}): Promise<T> {
		return this.#transport.call<T>({ name: `call ${path}`, ...options }, path, request, options);
	}

	/** Posts a job. A repeat with the same id creates no second job. */
	async post(posting: Posting, options: CallOptions = {}): Promise<Posted> {
		const [posted] = await this.postMany([posting], options);
		if (posted instanceof Error) {
			throw posted;
		}
		return posted!;
	}

	/** Posts up to 1,000 jobs in one call; each has its own verdict, in order. */
	async postMany(postings: Posting[], options: CallOptions = {}): Promise<(Posted | Error)[]> {
		if (postings.length > maxPostings) {
			throw new RefusedError("over_limit", `cannot post ${postings.length} jobs in one call: post at most ${maxPostings}`, {
				field: "postings", limit: maxPostings, size: postings.length, unit: "postings",
			});
		}
		const named = postings.map((posting) => ({
			id: newID(), name: posting.kind ?? posting.book_id ?? "job", ...(this.#board === undefined ? {} : { board: this.#board }), ...posting,
		}));
		const name = named.length === 1 ? `post job ${named[0]!.id}` : `post ${named.length} jobs`;
		const answer = await this.call<{ posted?: (Posted & { error?: WireError })[] }>("BoardService/Post", { postings: named }, { ...options, name });
		return (answer.posted ?? []).map(({ job, existed, error, signal }) =>
			error ? errorOf(error) : { job, existed: existed === true, ...(signal ? { signal } : {}) },
		);
	}

	/**
	 * Posts a job that runs a flow document, as `conductord flow run` does. Values in the posting's store replace values in the document's.
	 */
	async postFlow(document: FlowDocument, posting: Posting = {}, options: CallOptions = {}): Promise<Posted> {
		return this.post(flowPosting(document, posting), options);
	}

	/** Reads a job. */
	async get(id: string, options: CallOptions = {}): Promise<Job> {
		const { job } = await this.call<{ job: Job }>("BoardService/GetJob", { id }, { ...options, name: `get job ${id}`, reads: true });
		return job;
	}

	/** Lists a page of jobs, without details and store. */
	async list(query: JobQuery = {}, options: CallOptions = {}): Promise<JobPage> {
		const page = await this.call<Partial<JobPage>>("BoardService/ListJobs", query, { ...options, name: "list jobs", reads: true });
		return { ...page, jobs: page.jobs ?? [] };
	}

	/** Waits until a job is finished, or needs an operator: held, parked or suspended. `signal` ends the wait. */
	async wait(id: string, options: CallOptions = {}): Promise<Job> {
		for (;;) {
			const { job } = await this.call<{ job: Job }>("BoardService/WaitJob", { id, timeout: seconds(pollTime) }, {
				...options, name: `wait for job ${id}`, reads: true, wait: pollTime,
			});
			if (["completed", "trashed", "held", "suspended"].includes(job.state)) {
				return job;
			}
		}
	}

	/** Reads a step of a job's flow, such as `copy` or `send[2]`. */
	async step(job: string, step: string, options: CallOptions = {}): Promise<Step> {
		const answer = await this.call<{ step: Step }>("BoardService/WaitStep", { job, step }, { ...options, name: `read step ${step} of job ${job}`, reads: true });
		return answer.step;
	}

	/** Waits until a step has an outcome, or until its job needs an operator. `signal` ends the wait. */
	async waitStep(job: string, step: string, options: CallOptions = {}): Promise<Step> {
		for (;;) {
			const { step: found } = await this.call<{ step: Step }>("BoardService/WaitStep", { job, step, timeout: seconds(pollTime) }, {
				...options, name: `wait for step ${step} of job ${job}`, reads: true, wait: pollTime,
			});
			if (found.outcome || ["held", "suspended"].includes(found.job_state)) {
				return found;
			}
		}
	}

	/** The flow of a job with its started steps. A large flow comes in parts: see GetFlow. */
	async flow(id: string, options: CallOptions = {}): Promise<Record<string, Json>> {
		const { flow } = await this.call<{ flow: Record<string, Json> }>("LogbookService/GetFlow", { id }, { ...options, name: `get flow ${id}`, reads: true });
		return flow;
	}

	/** The flow of an iteration of a job, from 1. The cluster keeps the latest 10. */
	async iteration(job: string, iteration: number, options: CallOptions = {}): Promise<FlowDetail> {
		let id: string | undefined = (await this.get(job, options)).flow;
		while (id !== undefined) {
			const flow = (await this.#whole(id, options)) as Flow & FlowDetail;
			if ((flow.iteration ?? 1) === iteration) {
				return flow;
			}
			id = (flow.iteration ?? 1) > iteration ? flow.previous : undefined;
		}
		throw new RefusedError("not_found", `iteration ${iteration} of job ${job} does not exist, or is no longer kept`);
	}

	/** The results so far of a job's flow, by the names that its steps provide. */
	async results(job: string, options: CallOptions = {}): Promise<Values> {
		const { flow: id } = await this.get(job, options);
		return id === undefined ? {} : bySymbol(await this.#whole(id, options));
	}

	async #whole(id: string, options: CallOptions): Promise<Flow> {
		let whole: Flow | undefined;
		for (let more = true; more; ) {
			const request = { id, skip: whole?.atoms?.length ?? 0, atoms_only: whole !== undefined };
			const { flow, more: further } = await this.call<{ flow: Flow; more?: boolean }>("LogbookService/GetFlow", request, { ...options, name: `get flow ${id}`, reads: true });
			whole = { ...(whole ?? flow), atoms: [...(whole?.atoms ?? []), ...(flow.atoms ?? [])] };
			more = further ?? flow.more ?? false;
		}
		return whole!;
	}

	/** Cancels a job. With `revert`, the cluster first reverts the finished steps of its flow. */
	async cancel(job: string, order: Order & { revert?: boolean } = {}, options: CallOptions = {}): Promise<void> {
		await this.call("BoardService/Cancel", { job, ...order }, { ...options, name: `cancel job ${job}` });
	}

	/**
	 * Sends a signal to a job. A repeat with the same `id` changes nothing. The answer is `taken` if a step has taken the signal, and `kept`
	 * if no step waits yet.
	 */
	async signal(job: string, name: string, signal: { data?: Json; id?: string; reject?: string; by?: string } = {}, options: CallOptions = {}): Promise<SignalAnswer> {
		return this.call("BoardService/Signal", { job, name, id: newID(), ...signal }, { ...options, name: `signal job ${job}` });
	}

	/**
	 * Sends a signal to the unfinished job with a key, as `signal` does. The answer also has the job. `not_found`: no unfinished job has
	 * the key.
	 */
	async signalKey(
		key: string, name: string, signal: { board?: string; data?: Json; id?: string; reject?: string; by?: string } = {}, options: CallOptions = {},
	): Promise<SignalAnswer> {
		const board = this.#board === undefined ? {} : { board: this.#board };
		return this.call("BoardService/Signal", { key, name, id: newID(), ...board, ...signal }, { ...options, name: `signal the job with key ${key}` });
	}

	/**
	 * Publishes to the steps that wait for a topic and a key: to `one` step (default) or to `all`. With `keep`, such as `3600s`, the board keeps
	 * the publication for the next wait if no step waits. Otherwise the call fails with `nobody_waits`, and nothing happened. A repeat with the
	 * same topic, key and `id` changes nothing.
	 */
	async publish(
		topic: string, key: string,
		publication: { board?: string; data?: Json; id?: string; to?: "one" | "all"; keep?: string; reject?: string; by?: string } = {}, options: CallOptions = {},
	): Promise<{ answer: "taken" | "kept" | "repeated"; first?: "taken" | "kept"; waits?: number }> {
		const board = this.#board === undefined ? {} : { board: this.#board };
		return this.call("BoardService/Publish", { topic, key, id: newID(), ...board, ...publication }, { ...options, name: `publish to topic ${topic}` });
	}

	/**
	 * Approves or rejects the approval of a step, or withdraws your approval. Without a step, it decides the one open approval of the job. A
	 * rejection needs a reason. The answer has the outcome, or the missing needs. A repeat with the same `id` changes nothing.
	 */
	async decide(job: string, kind: "approve" | "reject" | "withdraw", decision: Decision = {}, options: CallOptions = {}): Promise<DecisionReceipt> {
		return this.call("BoardService/Decide", { job, kind, id: newID(), ...decision }, { ...options, name: `decide an approval of job ${job}` });
	}

	/** Approves or rejects the approval of a step at once, without the needed people. */
	async override(job: string, kind: "approve" | "reject", decision: Decision & { reason: string }, options: CallOptions = {}): Promise<DecisionReceipt> {
		return this.call("BoardService/Override", { job, kind, id: newID(), ...decision }, { ...options, name: `override an approval of job ${job}` });
	}

	/** Reads the latest approval of a step, even after the approval has ended. Without a step, it reads the one open approval of the job. */
	async approval(job: string, step = "", options: CallOptions = {}): Promise<StepApproval> {
		const { approval } = await this.call<{ approval: StepApproval }>("BoardService/GetApproval", { job, step }, {
			...options, name: `read an approval of job ${job}`, reads: true,
		});
		return approval;
	}

	/** Reads a page of the approvals that wait for decisions, the oldest first. */
	async approvals(query: { board?: string; after?: string; limit?: number } = {}, options: CallOptions = {}): Promise<{ approvals?: StepApproval[]; next?: string }> {
		return this.call("BoardService/ListApprovals", query, { ...options, name: "list approvals", reads: true });
	}

	/** Starts a failed, reverted, trashed or parked job again. */
	async retry(job: string, order: Order = {}, options: CallOptions = {}): Promise<void> {
		await this.call("BoardService/Retry", { job, ...order }, { ...options, name: `retry job ${job}` });
	}

	/**
	 * Yields events in order, without gaps or repeats, even if nodes die. It starts after the position `after`, or now. It ends
	 * with an error: `compacted`, or the reason of the signal.
	 */
	async *watch(query: WatchQuery = {}, options: { signal?: AbortSignal } = {}): AsyncGenerator<Event, void> {
		let { after } = query;
		const request = () => ({ ...query, ...(after === undefined ? {} : { after }) });
		for await (const message of this.#transport.lines({ name: "watch" }, "BoardService/Watch", request, watchSilence, options.signal)) {
			const { events, position } = message as { events?: Event[]; position?: string };
			for (const event of events ?? []) {
				after = event.position;
				yield event;
			}
			after = position ?? after;
		}
	}

	/** Closes the connections. Calls in flight fail. */
	close(): void {
		this.#transport.close();
	}
}

/** The posting of a job that runs a document: a book of one flow, with ids derived from the job's id. */
export function flowPosting(document: FlowDocument, posting: Posting): Posting {
	const id = posting.id ?? newID();
	const store: Values = { ...document.store, ...posting.store };
	for (const input of document.inputs ?? []) {
		if (!(input in store)) {
			throw new RefusedError("invalid", `cannot post the flow ${document.name}: it needs the input ${input}: give it in the store`, { field: `input ${input}` });
		}
	}
	const flow = {
		id: derivedID(id, "flow"), name: document.name, factory: { name: "document", args: document as unknown as Json }, store,
		...(document.targets ? { targets: document.targets } : {}), ...(document.on_change ? { on_change: document.on_change } : {}),
	};
	const { store: _, ...rest } = posting;
	return { name: document.name, ...rest, id, book: { id: derivedID(id, "book"), name: document.name, flows: [flow] } };
}

function pem(given: string | Buffer | undefined): string | Buffer | undefined {
	return typeof given !== "string" || given === "" ? given || undefined : given.includes("-----BEGIN") ? given : readFileSync(given);
}

function tokenOf(env: NodeJS.ProcessEnv): string | undefined {
	const file = env["CONDUCTORD_TOKEN_FILE"];
	if (!file) {
		return env["CONDUCTORD_TOKEN"] || undefined;
	}
	const mode = statSync(file).mode & 0o777;
	if (mode & 0o077) {
		throw new RefusedError("invalid", `cannot use the token in ${file}: others can read it: its mode is ${mode.toString(8)}: chmod 600 ${file}`, { field: "token" });
	}
	return readFileSync(file, "utf8").trim();
}
