// A worker that imports the lines of a file, and continues after the last imported line.
//
//	node clients/typescript/dist/examples/import-rows.js
import { appendFile, readFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { Client, Worker } from "conductord";

const client = new Client();
const worker = new Worker(client, { ttl: 3_000 }); // after a kill, another worker gets the step this soon
worker.step<{ source: string; target: string }>("import-rows", {
	async execute({ source, target }, ctx) {
		const lines = (await readFile(source, "utf8")).trimEnd().split("\n");
		const begun = await ctx.once("begun", () => ctx.attempt);
		let row = (ctx.checkpoints.row as number | undefined) ?? 0;
		for (const line of lines.slice(row)) {
			await appendFile(target, `${line}\n`); // a real step writes to a database, with row as an idempotency key
			await delay(30, undefined, { signal: ctx.signal });
			row++;
			ctx.progress(row, lines.length);
			await ctx.checkpoint("row", row); // after a kill, only the lines after this one are imported again
		}
		return { rows: row, begun, of: ctx.lastProgress?.total ?? null };
	},
});
await worker.run();
client.close();
