import "./dispose.js";

export { Arena, ArenaMatrix } from "./arena.js";
export type { CompiledArena, CompiledExecutor, CompiledMatrix, CompiledModel, ModuleSource } from "./backend.js";
export {
  capabilitiesAvailable,
  capabilitiesCompiled,
  cpuClassDetected,
  gpuDevices,
  init,
  setLogCallback,
  version,
} from "./devices.js";
export type { DataOf, Embeddings } from "./embeddings.js";
export { UFormError } from "./errors.js";
export { Executor } from "./executor.js";
export type { ExecutorForRamConfig, ExecutorForVramConfig, ExecutorOnPoolConfig } from "./executor.js";
export { GpuVendor, Mood } from "./generated.js";
export type {
  ArenaDescription,
  CpuClass,
  Dtype,
  EmbedOptions,
  ExecutorDescription,
  GpuClass,
  GpuDevice,
  Layout,
  Length,
  LoadOptions,
  ModelDescription,
  Normalize,
  PackOptions,
  Precision,
  Reading,
  Report,
  Residency,
  Role,
  Status,
  Token,
} from "./generated.js";
export { Model } from "./model.js";
export type { ModelFiles, ModelToken } from "./model.js";
export { On, OnDeferred } from "./on.js";
export type {
  DeferredEmbedTextsOptions,
  DeferredLoadOptions,
  EmbedTextsOptions,
  LoadRamOptions,
  LoadVramOptions,
  PlanOptions,
  RoleOptions,
} from "./options.js";
