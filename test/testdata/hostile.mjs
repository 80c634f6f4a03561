// A worker whose steps throw, return and report values that are hard to read.
import { Client, Failure, NotYet, Worker } from "conductord";

const cyclic = { name: "loop" };
cyclic.self = cyclic;
const fault = () => {
	throw new Error("a trap");
};
const revoked = () => {
	const { proxy, revoke } = Proxy.revocable({}, {});
	revoke();
	return proxy;
};
const set = (value, fields) => Object.assign(value, fields);
const hidden = (value, ...fields) => {
	for (const field of fields) {
		Object.defineProperty(value, field, { get: fault, enumerable: true });
	}
	return value;
};
const deep = (levels) => {
	let value = 0;
	for (let i = 0; i < levels; i++) {
		value = [value];
	}
	return value;
};
const flaky = () => {
	let reads = 0;
	return { toJSON: () => (reads++ === 0 ? "once" : fault()) };
};

const thrown = {
	"message-object": () => set(new Error(), { message: { code: 7 } }),
	"message-getter": () => hidden(new Error(), "message"),
	"message-empty": () => new RangeError(),
	"message-symbol": () => set(new Error(), { message: Symbol("why") }),
	"message-huge": () => new Error("x".repeat(30_000_000)),
	"message-surrogate": () => new Error("half \ud800 of a pair"),
	"name-object": () => set(new Error(""), { name: { a: 1 } }),
	"stack-number": () => set(new Error("with a number"), { stack: 7 }),
	"stack-getter": () => hidden(new Error("with a getter"), "stack"),
	"all-getters": () => hidden(new Error("x"), "stack", "message", "name"),
	"no-prototype": () => set(Object.create(null), { status: 503 }),
	"plain-object": () => ({ status: 404, body: cyclic }),
	"to-string": () => ({ toString: fault, toJSON: fault, [Symbol.toPrimitive]: fault }),
	"function": () => fault,
	"symbol": () => Symbol("s"),
	"null": () => null,
	"undefined": () => undefined,
	"revoked": () => revoked(),
	"proxy": () => new Proxy(new Error("x"), { get: fault, getPrototypeOf: fault, has: fault, ownKeys: fault }),
	"kind-object": () => new Failure("odd", { kind: { a: 1 } }),
	"kind-symbol": () => new Failure("odd", { kind: Symbol("k") }),
	"kind-number": () => new Failure("odd", { kind: 404 }),
	"kind-getter": () => hidden(new Failure("odd", { kind: "mine" }), "kind"),
	"kind-lost": () => new Failure("odd", { kind: "worker.lost" }),
	"failure-getters": () => hidden(new Failure("odd"), "message", "kind", "permanent", "details", "code"),
	"failure-message": () => set(new Failure("odd", { kind: "mine" }), { message: { code: 7 } }),
	"details-cyclic": () => new Failure("odd", { kind: "mine", details: cyclic }),
	"details-getter": () => new Failure("odd", { kind: "mine", details: hidden({}, "a") }),
	"details-revoked": () => new Failure("odd", { kind: "mine", details: revoked() }),
	"details-list": () => new Failure("odd", { kind: "mine", details: [1] }),
	"details-huge": () => new Failure("odd", { kind: "mine", details: { a: "x".repeat(3_000_000) } }),
	"details-deep": () => new Failure("odd", { kind: "mine", details: { a: deep(30_000) } }),
	"code-symbol": () => new Failure("odd", { kind: "mine", code: Symbol("c") }),
	"code-huge": () => new Failure("odd", { kind: "mine", code: 1e300 }),
	"permanent-object": () => new Failure("odd", { kind: "mine", permanent: revoked() }),
	"not-yet-symbol": () => new NotYet(1, Symbol("d")),
	"not-yet-nan": () => new NotYet(NaN),
	"not-yet-after": () => set(new NotYet(1), { after: Symbol("a") }),
	"not-yet-cyclic": () => new NotYet(1, cyclic),
	"not-yet-revoked": () => new NotYet(1, revoked()),
};

const returned = {
	"result-cyclic": () => cyclic,
	"result-json": () => ({ toJSON: () => { throw null; } }),
	"result-getter": () => hidden({}, "a"),
	"result-revoked": () => revoked(),
	"result-deep": () => deep(30_000),
	"result-flaky": () => flaky(),
	"thenable": () => hidden({}, "then"),
	"progress-nan": (ctx) => ctx.progress(NaN),
	"progress-over": (ctx) => ctx.progress(3, 2),
	"progress-symbol": (ctx) => ctx.progress(Symbol("p")),
	"progress-cyclic": (ctx) => ctx.progress(1, 2, cyclic),
	"progress-huge": (ctx) => ctx.progress(1, 2, "x".repeat(20_000)),
	"progress-changes": (ctx) => {
		const details = { a: 1 };
		ctx.progress(1, 2, details);
		details.self = details;
		return "kept";
	},
	"log-object": (ctx) => ctx.log(Object.create(null)),
};

const worker = new Worker(new Client(), { name: "hostile", slots: 16 });
worker.step("hostile", {
	execute({ case: name }, ctx) {
		if (name in thrown) {
			throw thrown[name]();
		}
		return returned[name](ctx);
	},
});
worker.step("hostile.schema", { execute: () => 1, schema: ({ case: name }) => { throw thrown[name](); } });
await worker.run();
