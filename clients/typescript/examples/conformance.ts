// A worker with the steps that test a client library against the worker protocol:
//
//	conductord step test -- node dist/examples/conformance.js
import { setTimeout as delay } from "node:timers/promises";
import { Client, Failure, NotYet, Worker } from "conductord";

const client = new Client();
const worker = new Worker(client, { slots: 16, ttl: 5_000 });

worker.step("test.echo", { execute: (args, ctx) => ({ arguments: args, attempt: ctx.attempt, key: ctx.key }) });

worker.step<{ message: string; kind: string; permanent: boolean }>("test.fail", {
	execute({ message, kind, permanent }) {
		throw new Failure(message, { kind, permanent });
	},
});

worker.step<{ seconds: number }>("test.sleep", {
	async execute({ seconds }, ctx) {
		await delay(seconds * 1000, undefined, { signal: ctx.signal });
		return { slept: seconds, attempt: ctx.attempt };
	},
});

worker.step<{ pause?: number }>("test.progress", {
	async execute({ pause = 600 }, ctx) {
		for (let at = 1; at <= 3; at++) {
			ctx.progress(at, 3, { at });
			ctx.log(`line ${at}`);
			await delay(pause, undefined, { signal: ctx.signal });
		}
		return { reported: 3 };
	},
});

worker.step<{ times: number }>("test.later", {
	execute({ times }, ctx) {
		if (ctx.asked < times) {
			throw new NotYet(100);
		}
		return { asked: ctx.asked };
	},
});

worker.step<{ rows: number }>("test.checkpoint", {
	async execute({ rows }, ctx) {
		const row = ((ctx.checkpoints.row as number | undefined) ?? 0) + 1;
		await ctx.checkpoint("row", row);
		if (row < rows) {
			throw new Failure(`row ${row} of ${rows}`);
		}
		return { row };
	},
});

worker.step<{ name: string }>("test.signal", {
	execute({ name }, ctx) {
		ctx.sendSignal(ctx.job, name);
		return { sent: name };
	},
});

worker.step<{ value: unknown }>("test.keep", {
	execute: ({ value }) => ({ kept: value }),
	revert: {
		type: "test.unkeep",
		run({ value }, ctx) {
			if (value === undefined || JSON.stringify(ctx.result) !== JSON.stringify({ kept: value })) {
				throw new Failure(`the revert was given ${JSON.stringify(ctx.result)} for ${JSON.stringify(value)}`, { permanent: true });
			}
		},
	},
});

worker.step<{ bytes: number }>("test.big", { execute: ({ bytes }) => ({ data: "x".repeat(bytes) }) });

worker.step("test.garbage", { execute: () => ({ when: () => 1, bytes: new Uint8Array(4), number: Number.NaN }) });

worker.step("test.crash", {
	execute() {
		throw new RangeError("unforeseen");
	},
});

await worker.run();
client.close();
