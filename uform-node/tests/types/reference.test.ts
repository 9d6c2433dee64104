/*
 * Holds the published interface of executors against the package, item by item: every class, member, option and
 * enumeration, by type and by value. A difference does not compile. `Mesh`, `MeshOptions`, `MeshDescription` and
 * `MultimemTier` come with training and are excused here by name.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import * as uform from "uform";
import {
  capabilitiesAvailable,
  capabilitiesCompiled,
  Executor,
  gpuDevices,
  GpuVendor,
  Mood,
  type CompiledExecutor,
  type ExecutorForRamConfig,
  type ExecutorForVramConfig,
  type ExecutorOnPoolConfig,
  type GpuDevice,
} from "uform";

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

/** Compiles when both types are the same, to the last modifier. */
function same<A, B>(..._: Same<A, B> extends true ? [] : [never]): void {}

/** A type with intersections and interfaces flattened, so that only members count. */
type Flat<T> = { [Key in keyof T]: T[Key] };

type ExcusedExports = "Mesh" | "MeshOptions" | "MeshDescription" | "MultimemTier";
same<Extract<keyof typeof uform, ExcusedExports>, never>();

same<
  Flat<ExecutorForRamConfig>,
  { memoryDomains?: number[]; cpuClass?: string; threads?: number; deferredLimit?: number }
>();
same<Flat<ExecutorOnPoolConfig>, { memoryDomains?: number[]; cpuClass?: string; deferredLimit?: number }>();
same<
  Flat<ExecutorForVramConfig>,
  {
    devices?: number[];
    gpuClass?: string;
    memoryDomains?: number[];
    cpuClass?: string;
    streams?: bigint[];
    scratchLimit?: number;
    deferredLimit?: number;
  }
>();
same<
  Flat<GpuDevice>,
  {
    vendor: GpuVendor;
    vendorOrdinal: number;
    gpuClass: string | null;
    computeUnits: number;
    memoryBytes: number;
    name: string;
  }
>();

same<typeof Executor.forRam, (config?: ExecutorForRamConfig) => Executor>();
same<typeof Executor.forVram, (config?: ExecutorForVramConfig) => Executor>();
same<typeof Executor.onPool, (pool: bigint, config?: ExecutorOnPoolConfig) => Executor>();
same<Executor["drain"], (mood?: Mood) => void>();
same<Executor["free"], () => void>();
same<Pick<Executor, "compiled">, { readonly compiled: CompiledExecutor }>();
same<typeof gpuDevices, () => GpuDevice[]>();
same<typeof capabilitiesCompiled, () => string>();
same<typeof capabilitiesAvailable, () => string>();

test("an executor is disposable", () => {
  const executor = Executor.forRam({ threads: 1 });
  const disposable: Disposable = executor;
  disposable[Symbol.dispose]();
  assert.throws(() => executor.describe(), { code: "invalid-argument" });
});

test("vendors are numbered as in C", () => {
  const vendors: Record<keyof typeof GpuVendor, number> = { ...numbersOf(GpuVendor) };
  assert.deepEqual(vendors, { Unknown: 0, Nvidia: 1, Amd: 2, Apple: 3 });
  assert.deepEqual(numbersOf(Mood), { Parked: 0, Spinning: 1 });
});

test("what training brings is not there yet", () => {
  for (const name of ["Mesh", "MeshOptions", "MeshDescription", "MultimemTier"]) assert.ok(!(name in uform), name);
});

/** The members of a numeric enumeration, without the reverse names. */
function numbersOf<Enumeration extends object>(enumeration: Enumeration): Record<keyof Enumeration, number> {
  const entries = Object.entries(enumeration).filter(([, value]) => typeof value === "number");
  return Object.fromEntries(entries) as Record<keyof Enumeration, number>;
}

test("each class and function is there at run time", () => {
  for (const name of ["forRam", "forVram", "onPool"] as const) assert.equal(typeof Executor[name], "function");
  for (const name of ["drain", "free", "describe", "trim"] as const) {
    assert.equal(typeof Executor.prototype[name], "function");
  }
  assert.ok(Array.isArray(gpuDevices()));
  for (const device of gpuDevices()) {
    const { vendor, vendorOrdinal, computeUnits, memoryBytes, name } = device;
    assert.ok(vendor in GpuVendor && vendorOrdinal >= 0 && computeUnits > 0 && memoryBytes > 0 && name.length > 0);
  }
  const compiled = capabilitiesCompiled().split(",");
  assert.ok(compiled.includes("serial"));
  for (const available of capabilitiesAvailable().split(",")) assert.ok(compiled.includes(available), available);
});
