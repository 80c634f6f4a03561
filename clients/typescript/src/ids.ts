import { createHash, randomBytes } from "node:crypto";

const format = (bytes: Buffer): string =>
	bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");

/** A new UUID of version 7, which sorts by time. If the caller sets the id, a repeated call changes nothing. */
export function newID(): string {
	const bytes = randomBytes(16);
	bytes.writeUIntBE(Date.now(), 0, 6);
	bytes[6] = (bytes[6]! & 0x0f) | 0x70;
	bytes[8] = (bytes[8]! & 0x3f) | 0x80;
	return format(bytes);
}

/** The id of a job's book or flow, derived from the job's id, so that a repeated post with the same id is identical. */
export function derivedID(id: string, what: string): string {
	const bytes = Buffer.from(id.replaceAll("-", ""), "hex");
	const sum = createHash("sha256").update(bytes).update(what).digest();
	sum.copy(bytes, 9, 0, 7); // the front holds the time and the marks of a UUID
	return format(bytes);
}
