import assert from "node:assert/strict";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { Client, decode, encode, Failure, flowPosting, newID, RefusedError, UnavailableError, UncertainError, Worker } from "conductord";
import { errorFrom } from "../src/errors.js";
import { baseURL } from "../src/http.js";
import { clip, seconds } from "../src/json.js";
import { failureOf, nameOf } from "../src/steps.js";

test("integers keep their digits, both ways", () => {
	for (const text of [
		'{"a":9007199254740993}', "[-9223372036854775808,18446744073709551615]", '{"a":"9007199254740993"}', '"\\"12345678901234567890"',
		'{"12345678901234567890":1}', "[9007199254740991,1.5]", '{"a":"x\\\\","b":12345678901234567890}',
	]) {
		assert.equal(encode(decode(text)), text);
	}
	assert.equal(decode("9007199254740993"), 9007199254740993n);
	assert.equal(decode("9007199254740991"), 9007199254740991);
	assert.equal(encode({ a: 2n ** 70n, b: undefined, c: "ü😀" }), '{"a":1180591620717411303424,"c":"ü😀"}');
	assert.throws(() => decode('{"a":12345678901234567890'), SyntaxError);
});

test("what JSON cannot hold is refused by name", () => {
	for (const [value, said] of [
		[undefined, /the value is undefined/], [{ f: () => 1 }, /"f" is a function/], [[Number.NaN], /"0" is NaN/], [{ n: Number.POSITIVE_INFINITY }, /"n" is Infinity/],
		[{ b: new Uint8Array(2) }, /"b" is bytes/], [{ b: Buffer.from("x") }, /"b" is bytes/], [new Map(), /the value is a Map/], [Symbol("s"), /a symbol/],
	] as const) {
		assert.throws(() => encode(value), said);
	}
	const loop: Record<string, unknown> = {};
	loop["self"] = loop;
	assert.throws(() => encode(loop), TypeError);
	assert.equal(encode({ at: new Date(0) }), '{"at":"1970-01-01T00:00:00.000Z"}');
});

test("texts are cut between characters", () => {
	assert.equal(clip("äöü", 3), "ä");
	assert.equal(clip("😀😀", 7), "😀");
	assert.equal(clip("abc", 3), "abc");
	assert.equal(seconds(1500), "1.500s");
});

test("errors have the code, and say whether the call happened", () => {
	const detail = { code: "over_limit", message: "too large", field: "result", limit: "262144", size: "9007199254740993", unit: "bytes" };
	const refused = errorFrom(429, { code: "resource_exhausted", message: "x", details: [{ type: "conductord.v1.Error", debug: detail }] });
	assert.ok(refused instanceof RefusedError);
	assert.deepEqual([refused.code, refused.field, refused.limit, refused.size, refused.unit], ["over_limit", "result", 262144n, 9007199254740993n, "bytes"]);
	for (const [body, kind, code, happened] of [
		[{ code: "unavailable", message: "no leader" }, UnavailableError, "unavailable", "no"],
		[{ code: "unknown", message: "lost" }, UncertainError, "uncertain", "unknown"],
		[{ code: "internal", message: "fault" }, UncertainError, "internal", "unknown"],
		[{ code: "invalid_argument", message: "unknown field" }, RefusedError, "invalid", "no"],
		[undefined, UncertainError, "uncertain", "unknown"],
		["a proxy's page", UncertainError, "uncertain", "unknown"],
	] as const) {
		const error = errorFrom(503, body);
		assert.ok(error instanceof kind);
		assert.deepEqual([error.code, error.happened], [code, happened]);
	}
});

test("ids are of version 7, and those of a flow follow from the job's", () => {
	const id = newID();
	assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
	assert.ok(Math.abs(Number.parseInt(id.replace("-", "").slice(0, 12), 16) - Date.now()) < 60_000);
	const document = { name: "f", inputs: ["a"], store: { b: 1 }, steps: [] };
	const posting = flowPosting(document, { id, store: { a: 2 } });
	assert.deepEqual(posting, flowPosting(document, { id, store: { a: 2 } }));
	assert.equal((posting.book as { id: string }).id.slice(0, 20), id.slice(0, 20));
	assert.throws(() => flowPosting(document, {}), /needs the input a/);
});

test("failures fit the wire", () => {
	assert.deepEqual(failureOf(new Failure("m", { kind: "k\n", permanent: true, details: { a: 1 }, code: 3 })).failure, {
		kind: "k ", message: "m", permanent: true, details: { a: 1 }, code: 3,
	});
	const { failure, stderr } = failureOf(new RangeError("ä".repeat(4096)));
	assert.equal(Buffer.byteLength(failure.message!), 4096);
	assert.match(stderr!, /RangeError/);
	assert.equal(failureOf("text").failure.message, "the step has thrown text");
	const id = { flow: "f", step: "s", action: "execute", attempt: 1 } as const;
	assert.equal(nameOf(id), nameOf({ asked: 0, ...id }));
});

test("options are checked", () => {
	assert.equal(baseURL("node1:7070", false), "http://node1:7070");
	assert.equal(baseURL("node1:7070", true), "https://node1:7070");
	for (const bad of ["", "ftp://a", "http://a/b", "http://u@a", "http://a?b"]) {
		assert.throws(() => baseURL(bad, false), RefusedError);
	}
	const client = new Client({ servers: "127.0.0.1:1" });
	assert.throws(() => new Worker(client, { slots: 1025 }), /slots is 1025/);
	assert.throws(() => new Worker(client).step("a", { execute: () => 1 }).step("a", { execute: () => 1 }), /there already/);
	assert.throws(() => new Client({ timeout: 0 }), /timeout/);
	assert.throws(() => new Client({ servers: "http://a:1", token: "cdt_x" }), /plain text/);
	process.env["CONDUCTORD_VALUE_KEYS"] = "keys";
	try {
		assert.throws(() => new Client({ servers: "a:1" }), /CONDUCTORD_VALUE_KEYS is set, and this client cannot encrypt values/);
	} finally {
		delete process.env["CONDUCTORD_VALUE_KEYS"];
	}
});

/** Runs a client against servers that answer as the listeners do. */
async function against(listeners: RequestListener[], timeout: number, use: (client: Client) => Promise<void>): Promise<void> {
	const servers = listeners.map((listener) => createServer(listener).listen(0, "127.0.0.1"));
	await Promise.all(servers.map((server) => new Promise((resolve) => (server.listening ? resolve(0) : server.once("listening", resolve)))));
	const client = new Client({ servers: servers.map((server) => `127.0.0.1:${(server.address() as AddressInfo).port}`), timeout });
	try {
		await use(client);
	} finally {
		client.close();
		servers.forEach((server) => server.close());
		servers.forEach((server) => server.closeAllConnections());
	}
}

test("a wait ends when the job is finished or needs an operator", async () => {
	for (const state of ["completed", "trashed", "held", "suspended"]) {
		const states = ["claimed", "cooling", state];
		await against([(_, response) => void response.end(JSON.stringify({ job: { id: "x", state: states.shift() } }))], 5_000, async (client) => {
			assert.equal((await client.wait("x")).state, state);
		});
	}
});

test("a wait for a step ends with its outcome, or when the job needs an operator", async () => {
	for (const last of [{ job_state: "claimed", outcome: "skipped" }, { job_state: "held" }, { job_state: "suspended" }]) {
		const answers: object[] = [{ job_state: "claimable" }, { job_state: "claimed", atom: { name: "send[2]", state: "running" } }, last];
		await against([(_, response) => void response.end(JSON.stringify({ step: answers.shift() }))], 5_000, async (client) => {
			assert.deepEqual(await client.step("x", "send[2]"), { job_state: "claimable" });
			assert.deepEqual(await client.waitStep("x", "send[2]"), last);
		});
	}
});

test("a signal has an id, which the caller can set", async () => {
	const bodies: { id: string; job: string; name: string; data?: object; reject?: string }[] = [];
	const listen: RequestListener = async (request, response) => {
		let body = "";
		for await (const chunk of request) {
			body += chunk;
		}
		assert.match(request.url ?? "", /BoardService\/Signal$/);
		bodies.push(JSON.parse(body));
		response.end(JSON.stringify({ answer: "taken" }));
	};
	await against([listen], 5_000, async (client) => {
		assert.deepEqual(await client.signal("j", "paid", { data: { amount: 7 }, id: "evt_17" }), { answer: "taken" });
		await client.signal("j", "paid", { reject: "no money" });
		await client.signalKey("order 7", "paid", { board: "mail", id: "evt_18" });
	});
	assert.deepEqual(bodies[2], { key: "order 7", board: "mail", name: "paid", id: "evt_18" } as object);
	assert.deepEqual(bodies[0], { job: "j", name: "paid", data: { amount: 7 }, id: "evt_17" });
	assert.deepEqual({ ...bodies[1], id: "" }, { job: "j", name: "paid", reject: "no money", id: "" });
	assert.match(bodies[1]!.id, /^[0-9a-f-]{36}$/);
});

test("a publication has its fields, and an id", async () => {
	const sent: { url: string; body: { id?: string } }[] = [];
	const listen: RequestListener = async (request, response) => {
		sent.push({ url: request.url ?? "", body: JSON.parse(Buffer.concat(await request.toArray()).toString()) });
		response.end(JSON.stringify({ answer: "taken", waits: 2 }));
	};
	await against([listen], 5_000, async (client) => {
		assert.deepEqual(await client.publish("payments", "17", { data: 7, id: "evt_17", to: "all" }), { answer: "taken", waits: 2 });
		await client.publish("payments", "17", { board: "mail", keep: "60s" });
	});
	assert.match(sent[0]!.url, /BoardService\/Publish$/);
	assert.deepEqual(sent[0]!.body, { topic: "payments", key: "17", data: 7, id: "evt_17", to: "all" } as object);
	assert.deepEqual({ ...sent[1]!.body, id: "" }, { topic: "payments", key: "17", board: "mail", keep: "60s", id: "" } as object);
	assert.match(sent[1]!.body.id!, /^[0-9a-f-]{36}$/);
});

test("a decision has its fields, and an id", async () => {
	const sent: { call: string; body: { id?: string; kind?: string } }[] = [];
	const listen: RequestListener = async (request, response) => {
		const call = (request.url ?? "").split("/").at(-1)!;
		sent.push({ call, body: JSON.parse(Buffer.concat(await request.toArray()).toString()) });
		response.end(JSON.stringify({ outcome: "approved", approval: { step: "ask", wait: { approval: { remind: [{ at: "2026-11-28T10:00:00Z" }] } } } }));
	};
	await against([listen], 5_000, async (client) => {
		assert.equal((await client.decide("j", "approve", { step: "ask", answers: { ticket: "CHG-1" }, id: "d1", by: "ann" })).outcome, "approved");
		await client.override("j", "reject", { reason: "outage" });
		const asked = await client.approval("j", "ask");
		assert.deepEqual([asked.step, asked.wait.approval.remind?.[0]?.at], ["ask", "2026-11-28T10:00:00Z"]);
		await client.approvals({ board: "orders" });
	});
	assert.deepEqual(sent.map((one) => one.call), ["Decide", "Override", "GetApproval", "ListApprovals"]);
	assert.deepEqual(sent[0]!.body, { job: "j", kind: "approve", step: "ask", answers: { ticket: "CHG-1" }, id: "d1", by: "ann" });
	assert.match(sent[1]!.body.id!, /^[0-9a-f-]{36}$/);
});

test("the flow of an earlier iteration is found", async () => {
	const flows: Record<string, object> = {
		f3: { id: "f3", iteration: 3, previous: "f2", store: { month: 3 } }, f2: { id: "f2", iteration: 2, continued: true, store: { month: 2 }, atoms: [{ name: "a" }] },
	};
	const listen: RequestListener = async (request, response) => {
		const { id } = JSON.parse(Buffer.concat(await request.toArray()).toString());
		const reads = (request.url ?? "").endsWith("GetJob");
		response.end(JSON.stringify(reads ? { job: { id: "j", flow: "f3", iteration: 3 } } : { flow: flows[id] }));
	};
	await against([listen], 5_000, async (client) => {
		assert.equal((await client.get("j")).iteration, 3);
		assert.equal((await client.iteration("j", 3)).id, "f3");
		const earlier = await client.iteration("j", 2);
		assert.deepEqual([earlier.store, earlier.continued, earlier.atoms?.[0]?.name], [{ month: 2 }, true, "a"]);
		for (const iteration of [1, 4]) {
			await assert.rejects(client.iteration("j", iteration), (error) => error instanceof RefusedError && error.code === "not_found");
		}
	});
});

test("a lost answer is repeated at another node, under the same id", async () => {
	const bodies: string[] = [];
	const read: (answer: boolean) => RequestListener = (answer) => async (request, response) => {
		bodies.push(Buffer.concat(await request.toArray()).toString());
		if (answer) {
			response.end('{"posted":[{"job":{"id":"x"},"existed":true}]}');
		} else {
			request.socket.destroy();
		}
	};
	await against([read(false), read(true)], 5_000, async (client) => {
		assert.deepEqual(await client.post({ kind: "k" }), { job: { id: "x" }, existed: true });
		assert.equal(bodies.length, 2);
		assert.equal(bodies[0], bodies[1]);
	});
});

test("without an answer the error says whether the call may have happened", async () => {
	const lost: RequestListener = (request) => request.socket.destroy();
	await against([lost], 300, async (client) => {
		await assert.rejects(client.post({ kind: "k" }), UncertainError);
		await assert.rejects(client.get(newID()), UnavailableError);
	});
	const unavailable: RequestListener = (_, response) => response.writeHead(503).end('{"code":"unavailable","message":"no leader"}');
	await against([unavailable, unavailable], 300, (client) => assert.rejects(client.post({ kind: "k" }), UnavailableError));
	const nobody = new Client({ servers: "127.0.0.1:1", timeout: 200 });
	await assert.rejects(nobody.post({ kind: "k" }), UnavailableError);
	const reason = new Error("enough");
	const controller = new AbortController();
	await against([() => controller.abort(reason)], 5_000, async (client) => {
		await assert.rejects(client.get(newID(), { signal: AbortSignal.abort(reason) }), reason);
		await assert.rejects(client.post({ kind: "k" }, { signal: controller.signal }), UncertainError);
	});
});

test("a step's end is reported after its lines", async () => {
	const id = { flow: "f", step: "s", action: "execute", attempt: 1 } as const;
	const reports: string[] = [];
	let worker: Worker;
	let given = false;
	let linesCame = () => {};
	const lines = new Promise<void>((resolve) => (linesCame = resolve));
	const stub: RequestListener = async (request, response) => {
		const body = JSON.parse(Buffer.concat(await request.toArray()).toString());
		let answer = {};
		if (request.url!.endsWith("/Pull")) {
			await delay(50);
			answer = given ? {} : { work: [{ id, job: "j", type: "t", key: "k", token: "1-1" }] };
			given = true;
		} else if (request.url!.endsWith("/Report")) {
			reports.push(body.outcome.done ? "end" : `lines ${body.outcome.output}`);
			if (body.outcome.done) {
				worker.stop();
			} else {
				linesCame();
				await delay(300); // a node that takes its time
				reports.push("answer");
			}
			answer = { recorded: true };
		}
		response.end(JSON.stringify(answer));
	};
	await against([stub], 5_000, async (client) => {
		worker = new Worker(client, { signals: [] }).step("t", {
			execute: async (_, ctx) => {
				ctx.log("at it");
				await lines;
			},
		});
		await worker.run();
	});
	assert.deepEqual(reports, ["lines at it\n", "answer", "end"]);
});

test("checkpoints are recorded one at a time, and each report has its own number", { timeout: 10_000 }, async () => {
	const id = { flow: "f", step: "s", action: "execute", attempt: 1 } as const;
	const work = { id, job: "j", type: "t", key: "k", token: "1-1", checkpoints: [{ name: "a", value: [1] }, { name: "none" }], last_progress: { done: "7", total: "9" } };
	const reports: unknown[] = [];
	const refusal = { code: "over_limit", message: "checkpoint is too large", field: "checkpoint" };
	let given = false;
	let lost = false;
	let result: unknown;
	let worker: Worker;
	const stub: RequestListener = async (request, response) => {
		const { outcome } = JSON.parse(Buffer.concat(await request.toArray()).toString());
		if (request.url!.endsWith("/Pull")) {
			await delay(20);
			response.end(JSON.stringify(given ? {} : { work: [work] }));
			given = true;
		} else if (request.url!.endsWith("/Report") && outcome.checkpoint) {
			reports.push(outcome.checkpoint);
			if (outcome.checkpoint.name === "large") {
				response.writeHead(429, { "content-type": "application/json" });
				response.end(JSON.stringify({ code: "resource_exhausted", message: "x", details: [{ type: "conductord.v1.Error", debug: refusal }] }));
			} else {
				response.end(JSON.stringify({ recorded: lost })); // the first answer: not yet recorded
				lost = true;
			}
		} else {
			if (outcome?.done) {
				({ result } = outcome);
				worker.stop();
			}
			response.end(JSON.stringify({ recorded: true }));
		}
	};
	await against([stub], 5_000, async (client) => {
		worker = new Worker(client, { signals: [] }).step("t", {
			execute: async (_, ctx) => {
				await assert.rejects(ctx.checkpoint("large", "x"), RefusedError);
				await assert.rejects(ctx.checkpoint("bytes", new Uint8Array(1) as never), TypeError);
				const first = ctx.checkpoint("b", 1);
				await Promise.all([first, ctx.checkpoint("b", 2)]);
				const known = await ctx.once("a", () => assert.fail("it has run before"));
				return [known, await ctx.once("c", () => 3), await ctx.once("c", () => 4), ctx.checkpoints, ctx.lastProgress];
			},
		});
		await worker.run();
	});
	const b1 = { name: "b", value: 1, number: 2 };
	assert.deepEqual(reports, [{ name: "large", value: "x", number: 1 }, b1, b1, { name: "b", value: 2, number: 3 }, { name: "c", value: 3, number: 4 }]);
	assert.deepEqual(result, [[1], 3, 3, { a: [1], none: null, b: 2, c: 3 }, { done: 7, total: 9 }]);
});

test("the revert of a step that never executed is not called", { timeout: 10_000 }, async () => {
	const undone: unknown[] = [];
	const unfit = { message: "euros is no number", kind: "bad_argument", step: "s" };
	const refund = (failure: { message: string; kind: string }, euros: unknown) =>
		({ id: { flow: "f", step: "s", action: "revert", attempt: 1 }, job: "j", type: "refund", key: "k", token: "1-1", arguments: { euros }, failure });
	const ends: unknown[] = [];
	const work = [refund(unfit, "ten")];
	work.push({ ...refund({ ...unfit, kind: "error" }, "ten"), id: { ...work[0]!.id, attempt: 2 } }, { ...refund(unfit, 10), id: { ...work[0]!.id, attempt: 3 } });
	let worker: Worker;
	const stub: RequestListener = async (request, response) => {
		const body = JSON.parse(Buffer.concat(await request.toArray()).toString());
		let answer = {};
		if (request.url!.endsWith("/Pull")) {
			await delay(20);
			answer = { work: work.splice(0, body.slots) };
		} else if (request.url!.endsWith("/Report")) {
			if (ends.push(body.outcome.failure?.kind ?? "undone") === 3) {
				worker.stop();
			}
			answer = { recorded: true };
		}
		response.end(JSON.stringify(answer));
	};
	await against([stub], 5_000, async (client) => {
		worker = new Worker(client, { signals: [], slots: 1 }).step("pay", {
			schema: (args: any) => {
				assert.equal(typeof args.euros, "number");
				return args;
			},
			execute: () => null,
			revert: { type: "refund", run: ({ euros }) => void undone.push(euros) },
		});
		await worker.run();
	});
	assert.deepEqual([ends, undone], [["undone", "bad_argument", "undone"], [10]]);
});

test("an attempt has the failure of the attempt before it, and a revert has its cause", { timeout: 10_000 }, async () => {
	const last = { kind: "bank.closed", message: "it is night", code: 75 };
	const cause = { kind: "cancel", by: "ada", reason: "wrong order" };
	const work: object[] = [
		{ id: { flow: "f", step: "s", action: "execute", attempt: 1 }, job: "j", type: "pay", key: "k", token: "1-1" },
		{ id: { flow: "f", step: "s", action: "execute", attempt: 2 }, job: "j", type: "pay", key: "k", token: "1-1", try: 2, tries: 3, last_failure: last },
		{ id: { flow: "f", step: "s", action: "revert", attempt: 1 }, job: "j", type: "refund", key: "k", token: "1-1", cause },
	];
	const seen: unknown[] = [];
	let worker: Worker;
	const stub: RequestListener = async (request, response) => {
		const body = JSON.parse(Buffer.concat(await request.toArray()).toString());
		let answer = {};
		if (request.url!.endsWith("/Pull")) {
			await delay(20);
			answer = { work: work.splice(0, body.slots) };
		} else if (request.url!.endsWith("/Report")) {
			if (body.outcome.id.action === "revert") {
				worker.stop();
			}
			answer = { recorded: true };
		}
		response.end(JSON.stringify(answer));
	};
	await against([stub], 5_000, async (client) => {
		worker = new Worker(client, { signals: [], slots: 1 }).step("pay", {
			execute: (_, ctx) => void seen.push(["execute", ctx.lastFailure, ctx.cause]),
			revert: { type: "refund", run: (_, ctx) => void seen.push(["revert", ctx.lastFailure, ctx.cause]) },
		});
		await worker.run();
	});
	assert.deepEqual(seen, [["execute", undefined, undefined], ["execute", last, undefined], ["revert", undefined, cause]]);
});

test("no step gets encrypted values", { timeout: 20_000 }, async () => {
	const value = "$encrypted:1:2026-12:AAAA$";
	const id = (step: string, action: "execute" | "revert") => ({ flow: "f", step, action, attempt: 1 });
	const common = { job: "j", key: "k", token: "1-1" };
	const work = [
		{ ...common, id: id("argument", "execute"), type: "t", arguments: { card: value } },
		{ ...common, id: id("checkpoint", "execute"), type: "t", checkpoints: [{ name: "row", value }] },
		{ ...common, id: id("progress", "execute"), type: "t", last_progress: { details: value } },
		{ ...common, id: id("failure", "execute"), type: "t", last_failure: { message: "m", details: { card: value } } },
		{ ...common, id: id("revert", "revert"), type: "u", result: value },
		{ ...common, id: { ...id("again", "revert"), asked: 9 }, type: "u", arguments: { card: value } },
		{ ...common, id: id("plain", "execute"), type: "t", arguments: { card: `${value}!` }, last_failure: { message: value } },
	];
	const ends: Record<string, { not_yet?: string; output?: string; result?: unknown }> = {};
	const started: unknown[] = [];
	let given = false;
	let worker: Worker;
	const stub: RequestListener = async (request, response) => {
		const { outcome } = JSON.parse(Buffer.concat(await request.toArray()).toString());
		if (request.url!.endsWith("/Pull")) {
			await delay(20);
			response.end(JSON.stringify(given ? {} : { work }));
			given = true;
			return;
		}
		if (outcome?.done) {
			ends[outcome.id.step] = outcome;
			if (Object.keys(ends).length === work.length) {
				worker.stop();
			}
		}
		response.end(JSON.stringify({ recorded: true }));
	};
	await against([stub], 5_000, async (client) => {
		const run = (args: unknown) => void started.push(args);
		worker = new Worker(client, { signals: [], warn: () => {} }).step("t", { execute: run, revert: { type: "u", run } });
		await worker.run();
	});
	assert.deepEqual(started, [{ card: `${value}!` }]);
	const waits = Object.fromEntries(Object.entries(ends).map(([step, end]) => [step, end.not_yet]));
	const wait = "1.000s";
	assert.deepEqual(waits, { argument: wait, checkpoint: wait, progress: wait, failure: wait, revert: wait, again: "60.000s", plain: undefined });
	assert.match(ends["argument"]!.output!, /not started: a value is encrypted with key 2026-12.* CONDUCTORD_VALUE_KEYS/);
});
