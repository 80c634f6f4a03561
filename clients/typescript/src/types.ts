import type { Json } from "./json.js";

// Fields have the names of docs/protocol.md, which describes each field. Answers omit fields that are
// empty, zero or false. 64-bit numbers (int64) are strings in answers.

export type Values = Record<string, Json>;
export type JobState = "claimable" | "claimed" | "delayed" | "cooling" | "waiting" | "held" | "suspended" | "completed" | "trashed";
export type Outcome = "success" | "reverted" | "failed" | "cancelled";

export interface RetryPolicy {
	attempts?: number; delay?: string;
	backoff_percent?: number; max_delay?: string;
	jitter_percent?: number; priority_step?: number;
	only?: string[]; never?: string[]; on_failure?: "complete" | "retry" | "park";
}

export interface Posting {
	/** A repeated post with the same id creates no second job. Default: the client makes an id. */
	id?: string;
	/** For people; default: the name of the flow document, or the kind. */
	name?: string; board?: string;
	kind?: string; book_id?: string;
	book?: Json; flow?: string;
	priority?: number; front?: boolean;
	details?: Json; store?: Values;
	not_before?: string; deadline?: string;
	/** Instead of deadline: counted from the posting, or from a later not_before. */
	deadline_after?: string;
	hold?: boolean; key?: string;
	tags?: string[]; labels?: string[];
	max_crashes?: number; retry?: RetryPolicy;
	retention?: string; traceparent?: string;
	/** Only with key: the unfinished job with the key gets the signal. Without such a job, the job is posted with the signal. Default id: the id of the posting. */
	signal?: { name: string; id?: string; data?: Json; reject?: string; by?: string };
}

/** The answer to a signal. */
export interface SignalAnswer {
	answer: "taken" | "kept" | "repeated";
	/** Only for repeated: the first answer. */
	first?: "taken" | "kept";
	/** The job that has received the signal. */
	job: string;
}

export interface Failure {
	kind?: string; message?: string;
	step?: string; code?: number;
	permanent?: boolean; stack?: string;
	causes?: Failure[]; details?: Values;
}

export interface Job {
	id: string; board: string;
	name: string; kind?: string;
	state: JobState; sequence: string;
	outcome?: Outcome; reason?: string;
	failure?: Failure; priority?: number;
	book?: string; flow?: string;
	key?: string; tags?: string[];
	details?: Json; store?: Values;
	/** The number of the current iteration of a flow that continues, from 2; undefined: the first. */
	iteration?: number;
	posted_at: string; finished_at?: string;
	/** For a scheduled job: the schedule's name and the slot's time. */
	schedule?: string; slot?: string;
	[field: string]: unknown;
}

/** A flow with the steps that have begun; see GetFlow in docs/protocol.md. */
export interface FlowDetail {
	id: string; name: string; state: string; store?: Values;
	/** From 2; undefined: the first iteration. */
	iteration?: number;
	/** The flow of the iteration before; undefined: none is kept. */
	previous?: string;
	/** A later iteration exists. */
	continued?: boolean;
	atoms?: Step["atom"][];
	[field: string]: unknown;
}

/** A step of a job's flow; see WaitStep in docs/protocol.md. */
export interface Step {
	job: string; job_state: JobState;
	flow: string; flow_state: string;
	atom: { name: string; kind?: string; state?: string; attempts?: { action: string; number: number; result?: Json; failure?: Failure; [field: string]: unknown }[]; [field: string]: unknown };
	/** Undefined: the step has not ended. */
	outcome?: "success" | "failure" | "skipped" | "reverted" | "revert_failed" | "unfinished";
	[field: string]: unknown;
}

/** The parts of a decision about an approval. Without access control, `by` names the person. */
export interface Decision {
	step?: string; reason?: string; answers?: { [field: string]: Json }; id?: string; by?: string;
}

export interface Need {
	role: string; count: number;
}

export interface DecisionReceipt {
	step: string;
	/** Undefined: not decided yet. */
	outcome?: "approved" | "rejected";
	missing?: Need[];
	repeated?: boolean;
}

export interface StepApproval {
	job: string; board: string; job_name?: string; flow: string; step: string; posted_by?: string;
	wait: {
		since: string; until: string; number: string;
		approval: { text?: string; need: Need[]; self?: boolean; fields?: Json; at_deadline?: string; remind?: { at: string }[]; decisions?: { kind: string; by: string; at: string; reason?: string; answers?: Json; override?: boolean }[] };
		[field: string]: unknown;
	};
	/** Undefined: not decided by people. */
	outcome?: "approved" | "rejected";
	missing?: Need[];
	open?: boolean;
}

export interface Posted {
	job: Job;
	/** A job with this id or key existed already. */
	existed: boolean;
	/** The answer to the posting's signal. */
	signal?: SignalAnswer;
}

export interface JobQuery {
	board?: string; states?: JobState[];
	kind?: string; key?: string;
	tags?: string[]; name?: string;
	outcomes?: Outcome[]; error_type?: string;
	posted_from?: string; posted_to?: string;
	finished_from?: string; finished_to?: string;
	order?: "newest" | "claim"; limit?: number;
	after?: string;
}

export interface JobPage {
	jobs: Job[];
	/** Pass it as `after` for the next page; undefined: the list ends. */
	next?: string; scans?: boolean;
}

export interface WatchQuery {
	after?: string; board?: string;
	boards?: string[]; job?: string;
	owner?: string; kinds?: string[];
	job_kind?: string; key?: string;
	tags?: string[]; flows?: boolean;
	sessions?: boolean;
}

export interface Event {
	position: string; kind: string;
	time: string; board?: string;
	job?: string; name?: string;
	state?: string; owner?: string;
	outcome?: Outcome; reason?: string;
	[field: string]: unknown;
}

/** A flow document as JSON, with the keys of docs/flows.md. */
export interface FlowDocument {
	name: string; store?: Values;
	inputs?: string[]; targets?: string[];
	on_change?: string; steps: object[];
	[field: string]: unknown;
}
