export { Client, type ClientOptions, flowPosting, type Order } from "./client.js";
export { ConductordError, RefusedError, UnavailableError, UncertainError } from "./errors.js";
export type { CallOptions } from "./http.js";
export { newID } from "./ids.js";
export { decode, encode, type Json } from "./json.js";
export { Failure, type FailureOptions, NotYet, type RevertCause, type StepContext, type StepType } from "./steps.js";
export type * from "./types.js";
export { Worker, type WorkerOptions } from "./worker.js";
