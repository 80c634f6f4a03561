/** An error of a call. docs/protocol.md of conductord lists the codes; they do not change. */
export abstract class ConductordError extends Error {
	/** Whether the call may have taken effect. You can always repeat it with the same ids. */
	abstract readonly happened: "no" | "unknown";
	/** The field that is wrong or too large. */
	declare readonly field?: string;
	declare readonly limit?: bigint;
	declare readonly size?: bigint;
	declare readonly unit?: string;
	/** For `compacted`: all events after this position are kept. */
	declare readonly since?: string;

	constructor(readonly code: string, message: string, wire: WireError = {}, cause?: unknown) {
		super(message, cause === undefined ? {} : { cause });
		this.name = new.target.name;
		for (const name of ["field", "unit", "since", "limit", "size"] as const) {
			const value = wire[name];
			if (value !== undefined && value !== "") {
				const counts = name === "limit" || name === "size";
				Object.defineProperty(this, name, { value: counts ? BigInt(value) : value, enumerable: true });
			}
		}
	}
}

/** The cluster has refused the call. The call had no effect, and a repeat would be refused too. */
export class RefusedError extends ConductordError {
	readonly happened = "no";
}

/** No node could take the call (`unavailable`), or a queue was full (`overloaded`). The call had no effect. */
export class UnavailableError extends ConductordError {
	readonly happened = "no";
}

/** The answer was lost (`uncertain`), or the node has a fault (`internal`). The call may have taken effect. */
export class UncertainError extends ConductordError {
	readonly happened = "unknown";
}

/** conductord.v1.Error in JSON. */
export interface WireError {
	code?: string;
	message?: string;
	field?: string;
	limit?: string | number;
	size?: string | number;
	unit?: string;
	since?: string;
}

/** The codes of the Connect protocol, for answers without a detail. */
const codes: Record<string, string> = {
	invalid_argument: "invalid", out_of_range: "compacted", resource_exhausted: "over_limit", not_found: "not_found",
	already_exists: "conflict", aborted: "conflict", failed_precondition: "fenced", permission_denied: "not_allowed",
	unauthenticated: "not_allowed", unavailable: "unavailable", unimplemented: "invalid", internal: "internal",
};

/** The error of a call, from the body of an answer. */
export function errorFrom(status: number, body: unknown): ConductordError {
	const said = (typeof body === "object" && body !== null ? body : {}) as {
		code?: string; message?: string; details?: { type?: string; debug?: WireError }[];
	};
	const wire = Array.isArray(said.details) ? said.details.find((detail) => detail.type === "conductord.v1.Error")?.debug : undefined;
	// An answer of a proxy does not show whether a node received the call.
	const code = wire?.code || codes[said.code ?? ""] || "uncertain";
	return errorOf({ ...wire, code, message: wire?.message || said.message || `the answer has the HTTP status ${status}` });
}

/** The error for a conductord.v1.Error. */
export function errorOf(wire: WireError): ConductordError {
	const { code = "uncertain", message = code } = wire;
	switch (code) {
		case "unavailable":
		case "overloaded":
			return new UnavailableError(code, message, wire);
		case "uncertain":
		case "internal":
			return new UncertainError(code, message, wire);
	}
	return new RefusedError(code, message, wire);
}
