import { inflateRawSync } from "node:zlib";
import { decode, type Json } from "./json.js";
import type { Values } from "./types.js";

/** Where a value comes from: a part of the recorded definition of a flow. */
type Source = { n?: string; s?: string; f?: string; e?: boolean; i?: boolean; l?: Source; b?: string[] };
type Atom = { name: string; state?: string; attempts?: { action: string; result?: Json }[] };
export type Flow = { id: string; more?: boolean; definition?: { packed?: string }; atoms?: Atom[] };

/** The values of a whole flow by the names that its steps provide, as (*FlowDetail).Values of package logbook finds them. */
export function bySymbol(flow: Flow): Values {
	const packed = Buffer.from(flow.definition?.packed ?? "", "base64");
	if (flow.definition !== undefined && packed.length === 0) {
		throw new Error(`the definition of flow ${flow.id} was too long to be kept: read its steps with LogbookService/GetFlow`);
	}
	const text = packed[0] === 0x64 ? inflateRawSync(packed.subarray(1)) : packed.subarray(1); // "d" is deflated
	const atoms = new Map((flow.atoms ?? []).map((atom) => [atom.name, atom]));
	const values = new Map<string, Json>();
	const providers = new Map<string, string[]>();
	for (const step of (packed.length === 0 ? [] : decode(text.toString())) as { n: string; o?: Source[] }[]) {
		for (const source of step.o ?? []) {
			const found = valueOf(atoms, { n: step.n, ...source }, "");
			if (found !== undefined) {
				const [symbol, before] = [source.s!, providers.get(source.s!) ?? []];
				values.delete(symbol); // the value of an earlier step
				if (found.length > 0 && !(source.b ?? []).some((name) => before.includes(name) || (name === "" && before.length > 0))) {
					values.set(symbol, found[0]!);
				}
				providers.set(symbol, [...before, step.n]);
			}
		}
	}
	return Object.fromEntries(values);
}

/** The value of a source in the instance `at`, such as "[3]": one, none, or undefined if unknown. */
function valueOf(atoms: Map<string, Atom>, source: Source, at: string): Json[] | undefined {
	const place = source.e || source.i; // of the list behind the last index
	const open = at.lastIndexOf("[");
	const index = Number(at.slice(open + 1, -1));
	const atom = atoms.get(source.n! + (place ? at.slice(0, Math.max(0, open)) : at));
	const done = atom?.attempts?.filter(({ action }) => action === "execute").at(-1);
	if ((place && open < 0) || atom?.state !== "success" || done === undefined) {
		return atom?.state === "ignored" && at !== "" ? [] : undefined;
	}
	const result = done.result ?? null;
	if (source.i) {
		return [index];
	}
	if (place || source.l) {
		const list = result as Json[];
		const gathered = source.l ? list.map((_, i) => valueOf(atoms, source.l!, `${at}[${i}]`)) : [];
		return place ? [list[index]!] : gathered.includes(undefined) ? undefined : [gathered.map((found) => found![0] ?? null)];
	}
	const field = source.f ?? "";
	return field === "" ? [result] : Object.hasOwn(Object(result), field) ? [(result as Values)[field]!] : [];
}
