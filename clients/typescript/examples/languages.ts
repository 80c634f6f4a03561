// The worker in TypeScript of examples/languages/trip.toml: it charges a card, and refunds it.
//
//	node clients/typescript/dist/examples/languages.js
import { existsSync } from "node:fs";
import { appendFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { Client, Failure, type StepContext, Worker } from "conductord";

interface Trip {
	dir: string;
	fail_at: string;
	flight: string;
	hotel: string;
	car: string;
}

const note = ({ dir }: Trip, ctx: StepContext, what: string) =>
	appendFile(`${dir}/log`, `${ctx.step} ${ctx.action} ${ctx.attempt} ${ctx.key} ${what}\n`);

const client = new Client();
const worker = new Worker(client, { name: "typescript", ttl: 3_000 }); // after a kill, another worker gets the step this soon
worker.step<Trip>("charge-card", {
	async execute(trip, ctx) {
		await note(trip, ctx, "begins");
		while (existsSync(`${trip.dir}/${ctx.step}.busy`)) {
			await delay(100, undefined, { signal: ctx.signal }); // time to kill the worker in
		}
		if (trip.fail_at === ctx.step) {
			throw new Failure("the card was declined", { kind: "refused", permanent: true });
		}
		// A real step passes ctx.key to the bank, which makes one charge for all attempts.
		await note(trip, ctx, "books");
		return `paid for ${trip.flight}, ${trip.hotel} and ${trip.car}`;
	},
	revert: { type: "refund-card", run: (trip, ctx) => note(trip, ctx, "cancels") }, // ctx.result is undefined if nothing was charged
});
await worker.run();
client.close();
