// Books a trip: flight, hotel and car in parallel, and charges the card at the end. If the card is declined, all three are cancelled.
// examples/travel.toml defines the steps.
//
//	node dist/examples/travel.js                  # until ctrl-C or SIGTERM: only a worker
//	node dist/examples/travel.js run              # posts a trip too, and ends with it
//	node dist/examples/travel.js run charge-card  # this step fails, and the others are undone
import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { Client, Failure, type StepContext, Worker } from "conductord";

interface Booking {
	account: string;
	pace: number;
	fail_at: string;
	[name: string]: unknown;
}

const client = new Client();
const worker = new Worker(client, { slots: 4 });

/** The duration of a booking; it fails if the trip requests that. */
async function work(args: Booking, ctx: StepContext, refusal: string): Promise<string> {
	ctx.log(`asking for ${ctx.step}`);
	await delay(args.pace * 1000, undefined, { signal: ctx.signal });
	if (args.fail_at === ctx.step) {
		throw new Failure(refusal, { kind: "refused", permanent: true });
	}
	// The key is the same in every attempt, so booking again after a crash gives the same booking.
	return createHash("sha256").update(ctx.key).digest("hex").slice(0, 5);
}

/** A revert: the result has the booking. There is none if the booking failed. */
function cancel(type: string, what: string) {
	return {
		type,
		async run({ pace }: Booking, ctx: StepContext) {
			await delay(pace * 1000, undefined, { signal: ctx.signal });
			ctx.log(ctx.result ? `${what} ${ctx.result[what]} is cancelled` : "nothing was booked, so there is nothing to cancel");
		},
	};
}

worker.step<Booking & { customer: string }>("check-customer", {
	schema(args) {
		const given = args as Booking & { customer: string };
		if (typeof given.customer !== "string" || given.customer === "") {
			throw new Error("customer is no name");
		}
		return given;
	},
	async execute(args, ctx) {
		await work(args, ctx, "the customer is not known");
		return `account of ${args.customer}`;
	},
});
worker.step<Booking>("book-flight", {
	execute: async (args, ctx) => ({ flight: `FL-${await work(args, ctx, "no seats left")}`, flight_price: 189 }),
	revert: cancel("cancel-flight", "flight"),
});
worker.step<Booking & { nights: number }>("book-hotel", {
	execute: async (args, ctx) => ({ hotel: `HT-${await work(args, ctx, "no rooms left")}`, hotel_price: args.nights * 95 }),
	revert: cancel("cancel-hotel", "hotel"),
});
worker.step<Booking & { days: number }>("book-car", {
	execute: async (args, ctx) => ({ car: `CR-${await work(args, ctx, "no cars left")}`, car_price: args.days * 40 }),
	revert: cancel("cancel-car", "car"),
});
worker.step<Booking & { flight_price: number; hotel_price: number; car_price: number }>("charge-card", {
	async execute(args, ctx) {
		const receipt = await work(args, ctx, "the card was declined");
		return { receipt, charged: args.flight_price + args.hotel_price + args.car_price };
	},
	revert: cancel("refund-card", "receipt"),
});

const trip = {
	name: "travel",
	store: { customer: "Ada Lovelace", from: "Vienna", to: "Lisbon", nights: 3, pace: 0.2, fail_at: "" },
	steps: [
		{ name: "check-customer", worker: true, requires: ["customer", "pace", "fail_at"], provides: "account" },
		{ name: "book-flight", worker: true, revert: "cancel-flight", requires: ["account", "from", "to", "pace", "fail_at"], provides: ["flight", "flight_price"] },
		{
			name: "book-hotel", worker: true, revert: "cancel-hotel", provides: ["hotel", "hotel_price"],
			requires: { account: "account", city: "to", nights: "nights", pace: "pace", fail_at: "fail_at" },
		},
		{
			name: "book-car", worker: true, revert: "cancel-car", provides: ["car", "car_price"],
			requires: { account: "account", city: "to", days: "nights", pace: "pace", fail_at: "fail_at" },
		},
		{
			name: "charge-card", worker: true, revert: "refund-card", provides: "receipt",
			requires: ["account", "flight_price", "hotel_price", "car_price", "pace", "fail_at"],
		},
	],
};

const done = worker.run();
if (process.argv[2] === "run") {
	const { job } = await client.postFlow(trip, { store: { fail_at: process.argv[3] ?? "" } });
	const ended = await client.wait(job.id);
	console.log(job.id, ended.outcome, ended.failure?.message ?? "");
	worker.stop();
}
await done;
client.close();
