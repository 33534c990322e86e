// Writes zod.json: types of zod as JSON Schema, as applications send them, each with values that zod takes.
// In a copy of this folder: npm install && node zod.mjs > zod.json
import { readFileSync } from "node:fs";
import { zodToJsonSchema } from "zod-to-json-schema";
import * as z from "zod";
import { z as z3 } from "zod3";

const texts = {};
function add(name, type, schema, ...values) {
  for (const value of values) {
    if (!type.safeParse(value).success) throw new Error(`${name}: zod does not take ${JSON.stringify(value)}`);
  }
  texts[name] = { schema, values };
}
const three = (name, type, ...values) => add(`zod 3: ${name}`, type, zodToJsonSchema(type), ...values);
const four = (name, type, ...values) => add(`zod 4: ${name}`, type, z.toJSONSchema(type), ...values);

three("object with optional, nullable, default",
  z3.object({ a: z3.string().optional(), b: z3.number().nullable(), c: z3.boolean().default(true) }), { b: null }, { a: "x", b: 1, c: false });
three("string().email()", z3.object({ mail: z3.string().email() }), { mail: "a@example.com" });
three("string().min().max().regex()", z3.object({ code: z3.string().min(2).max(8).regex(/^[A-Z]+$/) }), { code: "AB" });
three("uuid(), url(), datetime()",
  z3.object({ id: z3.string().uuid(), url: z3.string().url(), at: z3.string().datetime() }),
  { id: "1b4e28ba-2fa1-41d2-883f-0016d3cca427", url: "https://example.com/", at: "2026-02-28T10:11:12Z" });
three("number().int().min().max()", z3.object({ n: z3.number().int().min(1).max(9) }), { n: 1 }, { n: 9 });
three("enum() and literal()", z3.object({ a: z3.enum(["x", "y"]), b: z3.literal(3) }), { a: "x", b: 3 });
three("union()", z3.object({ a: z3.union([z3.string(), z3.number()]) }), { a: "x" }, { a: 1 });
const pets3 = z3.discriminatedUnion("kind", [
  z3.object({ kind: z3.literal("cat"), lives: z3.number().int() }), z3.object({ kind: z3.literal("dog"), name: z3.string() })]);
three("discriminatedUnion()", z3.object({ pet: pets3 }), { pet: { kind: "cat", lives: 9 } }, { pet: { kind: "dog", name: "Rex" } });
three("record(string, number)", z3.object({ a: z3.record(z3.number()) }), { a: {} }, { a: { b: 1 } });
three("record(enum, number)", z3.object({ a: z3.record(z3.enum(["x", "y"]), z3.number()) }), { a: { x: 1, y: 2 } });
three("tuple().rest()", z3.object({ a: z3.tuple([z3.string(), z3.number()]).rest(z3.boolean()) }), { a: ["x", 1, true] });
three("set(string)", z3.object({ a: z3.set(z3.string()) })); // JSON has no set that zod would take
three("intersection", z3.object({ a: z3.string() }).and(z3.object({ b: z3.number() })), { a: "x", b: 1 });
three("passthrough()", z3.object({ a: z3.string() }).passthrough(), { a: "x", b: 1 });
const tree3 = z3.object({ value: z3.number(), children: z3.lazy(() => z3.array(tree3)) });
three("lazy()", tree3, { value: 1, children: [{ value: 2, children: [] }] });
const card = z3.object({ id: z3.string(), note: z3.string().nullable() });
add("zod 3: target openApi3", card, zodToJsonSchema(card, { target: "openApi3" }), { id: "a", note: "b" });
add("zod 3: target openAi", card, zodToJsonSchema(card, { target: "openAi" }), { id: "a", note: "b" });

four("object with optional, nullable, default",
  z.object({ a: z.string().optional(), b: z.number().nullable(), c: z.boolean().default(true) }), { b: null, c: true }, { a: "x", b: 1, c: false });
four("email()", z.object({ mail: z.email() }), { mail: "a@example.com" });
four("uuid()", z.object({ id: z.uuid() }), { id: "1b4e28ba-2fa1-41d2-883f-0016d3cca427" });
four("url()", z.object({ url: z.url() }), { url: "https://example.com/" });
four("iso.datetime()", z.object({ at: z.iso.datetime() }), { at: "2026-02-28T10:11:12Z" });
four("iso.date(), iso.time()", z.object({ d: z.iso.date(), t: z.iso.time() }), { d: "2026-02-28", t: "10:11:12" });
four("iso.duration()", z.object({ d: z.iso.duration() }), { d: "P3D" });
four("ipv4(), ipv6()", z.object({ a: z.ipv4(), b: z.ipv6() }), { a: "10.0.0.1", b: "::1" });
four("cidrv4()", z.object({ a: z.cidrv4() }), { a: "10.0.0.0/8" });
four("base64()", z.object({ a: z.base64() }), { a: "YWJj" });
four("nanoid(), ulid(), cuid2()", z.object({ a: z.nanoid(), b: z.ulid(), c: z.cuid2() }),
  { a: "V1StGXR8_Z5jdHi6B-myT", b: "01ARZ3NDEKTSV4RRFFQ69G5FAV", c: "tz4a98xxat96iws9zmbrgj3a" });
four("e164()", z.object({ a: z.e164() }), { a: "+491701234567" });
four("emoji()", z.object({ a: z.emoji() }), { a: "🙂" });
four("string().lowercase().startsWith()", z.object({ a: z.string().lowercase().startsWith("x-") }), { a: "x-ab" });
four("string().trim().nonempty().max()", z.object({ a: z.string().trim().nonempty().max(20) }), { a: "ab" });
four("int(), int32(), positive()", z.object({ a: z.int(), b: z.int32(), c: z.number().positive() }), { a: 1, b: -2, c: 0.5 });
four("number().multipleOf(0.01)", z.object({ a: z.number().multipleOf(0.01).nonnegative() }), { a: 1.25 });
four("enum(), literal([...])", z.object({ a: z.enum(["x", "y"]), b: z.literal(["p", 1, null]) }), { a: "x", b: null });
four("union()", z.object({ a: z.union([z.string(), z.object({ b: z.number() })]) }), { a: "x" }, { a: { b: 1 } });
const pets4 = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("cat"), lives: z.int() }), z.object({ kind: z.literal("dog"), name: z.string() })]);
four("discriminatedUnion()", z.object({ pet: pets4 }), { pet: { kind: "cat", lives: 9 } }, { pet: { kind: "dog", name: "Rex" } });
four("record(string, number)", z.object({ a: z.record(z.string(), z.number()) }), { a: {} }, { a: { b: 1 } });
four("record(enum, number)", z.object({ a: z.record(z.enum(["x", "y"]), z.number()) }), { a: { x: 1, y: 2 } });
four("partialRecord(enum, number)", z.object({ a: z.partialRecord(z.enum(["x", "y"]), z.number()) }), { a: {} }, { a: { y: 2 } });
four("record(regex, number)", z.object({ a: z.record(z.string().regex(/^[a-z]+$/), z.number()) }), { a: { b: 1 } });
four("tuple()", z.object({ a: z.tuple([z.string(), z.number()]) }), { a: ["x", 1] });
four("tuple() with rest", z.object({ a: z.tuple([z.string()], z.number()) }), { a: ["x", 1, 2] });
four("array().min().max()", z.object({ a: z.array(z.int()).min(1).max(3) }), { a: [1, 2] });
four("intersection()", z.intersection(z.object({ a: z.string() }), z.object({ b: z.number() })), { a: "x", b: 1 });
four("strictObject()", z.strictObject({ a: z.string() }), { a: "x" });
four("looseObject()", z.looseObject({ a: z.string() }), { a: "x", b: 1 });
four("catchall()", z.object({ a: z.string() }).catchall(z.number()), { a: "x", b: 1 });
four("templateLiteral()", z.object({ a: z.templateLiteral(["v", z.int(), "-", z.enum(["rc", "ga"])]) }), { a: "v1-rc" });
four("json()", z.object({ a: z.json() }), { a: [1, { b: null }] });
four("any(), unknown(), null()", z.object({ a: z.any(), b: z.unknown(), c: z.null() }), { a: 1, b: [], c: null });
const tree4 = z.object({ value: z.number(), get children() { return z.array(tree4); } });
four("a recursive object", tree4, { value: 1, children: [{ value: 2, children: [] }] });
const named = z.object({ id: z.string().meta({ id: "Id", title: "Id", examples: ["a"], deprecated: true }) });
four("meta()", named, { id: "a" });
const shop = z.object({ id: z.uuid(), lines: z.array(z.object({ sku: z.string(), count: z.int().min(1) })), note: z.string().nullable() });
const order = { id: "1b4e28ba-2fa1-41d2-883f-0016d3cca427", lines: [{ sku: "a", count: 1 }], note: "b" };
for (const target of ["draft-04", "draft-07", "openapi-3.0"]) add(`zod 4: target ${target}`, shop, z.toJSONSchema(shop, { target }), order);
add("zod 4: io input", named, z.toJSONSchema(named, { io: "input" }), { id: "a" });

const { dependencies } = JSON.parse(readFileSync(new URL("package.json", import.meta.url)));
const lines = Object.entries(texts).map(([name, text]) => `    ${JSON.stringify(name)}: ${JSON.stringify(text)}`);
console.log(`{\n  "versions": ${JSON.stringify(dependencies)},\n  "types": {\n${lines.join(",\n")}\n  }\n}`);
