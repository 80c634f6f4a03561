// Posts a flow document of one step, follows it, and prints the result:
//
//	conductord dev
//	node dist/examples/post-and-wait.js Grace
import { Client, RefusedError, UncertainError, Worker } from "conductord";

const client = new Client();
const worker = new Worker(client, { signals: [] }); // usually a separate process
worker.step<{ guest: string }>("greet", { execute: ({ guest }) => `Hello ${guest}!` });
const done = worker.run();

const document = {
	name: "greeting",
	inputs: ["guest"],
	steps: [{ name: "greet", worker: true, requires: ["guest"], provides: "greeting" }],
};
try {
	const { job } = await client.postFlow(document, { store: { guest: process.argv[2] ?? "Ada" }, tags: ["example"] });
	console.log("posted", job.id);
	const ended = await client.wait(job.id, { signal: AbortSignal.timeout(60_000) });
	console.log(ended.outcome, ended.failure?.message ?? "");
	const flow = (await client.flow(ended.flow!)) as { atoms?: { name: string; attempts?: { result?: unknown }[] }[] };
	for (const step of flow.atoms ?? []) {
		console.log(step.name, step.attempts?.at(-1)?.result);
	}
} catch (error) {
	if (error instanceof RefusedError) {
		console.error("it did not happen, and will not:", error.code, error.message);
	} else if (error instanceof UncertainError) {
		console.error("post it again under the same id:", error.message);
	} else {
		throw error;
	}
	process.exitCode = 1;
} finally {
	worker.stop();
	await done;
	client.close();
}
