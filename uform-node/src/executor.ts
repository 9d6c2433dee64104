import { backend, type CompiledExecutor } from "./backend.js";
import { count, known, optional, ordinals, refuse } from "./checks.js";
import { compiled } from "./errors.js";
import { Mood, type ExecutorDescription } from "./generated.js";

/** Where the threads of an executor for models in RAM run, and how many there are. */
export interface ExecutorForRamConfig {
  /** NUMA domains that the threads are spread over; all of them by default. */
  memoryDomains?: number[];
  /** The CPU class to dispatch as, like "intel-haswell"; the machine's own by default. */
  cpuClass?: string;
  /** Threads that compute at once; by default 7/8 of the usable cores of the domains, rounded up. */
  threads?: number;
  /** Deferred calls that are tracked at once; 64 by default. */
  deferredLimit?: number;
}

/** What an executor on a borrowed pool of threads is told. */
export interface ExecutorOnPoolConfig {
  /** NUMA domains of the models that it will run; all of them by default. */
  memoryDomains?: number[];
  /** The CPU class to dispatch as, like "intel-haswell"; the machine's own by default. */
  cpuClass?: string;
  /** Deferred calls that are tracked at once; 64 by default. */
  deferredLimit?: number;
}

/** Which GPUs an executor for models in VRAM drives, and how. */
export interface ExecutorForVramConfig {
  /** Ordinals of the devices, which are positions in `gpuDevices()`; one free device by default. */
  devices?: number[];
  /** The GPU class that every device dispatches as, like "nvidia-hopper"; the devices' own by default. */
  gpuClass?: string;
  /** NUMA domains whose cores decode on the host; all of them by default. */
  memoryDomains?: number[];
  /** The CPU class that the host's part dispatches as; the machine's own by default. */
  cpuClass?: string;
  /** Addresses of the caller's CUDA streams, one per device in the same order; own streams by default. */
  streams?: bigint[];
  /** The most bytes of scratch per device; by default scratch grows as calls need it. */
  scratchLimit?: number;
  /** Deferred calls that are tracked at once; 64 by default. */
  deferredLimit?: number;
}

/**
 * Threads or device streams, with the scratch that computing needs. One executor serves any number of models, so the
 * cost of threads is paid where the executor is made. It runs one call at a time in the order of submission; two
 * threads of JavaScript that are to compute at once make one each. Belongs to the thread of JavaScript that made it.
 */
export class Executor implements Disposable {
  /** The backend's handle. */
  readonly compiled: CompiledExecutor;

  private constructor(handle: CompiledExecutor) {
    this.compiled = handle;
  }

  /** Spawns host threads for models in RAM. Throws "unsupported" for a class that this machine cannot run. */
  static forRam(config: ExecutorForRamConfig = {}): Executor {
    known(config, ["memoryDomains", "cpuClass", "threads", "deferredLimit"]);
    const domains = ordinals("memoryDomains", config.memoryDomains);
    const cpuClass = optional("cpuClass", config.cpuClass, "string");
    const threads = count("threads", config.threads);
    const limit = count("deferredLimit", config.deferredLimit);
    return new Executor(compiled(() => backend.executorForRam(domains, cpuClass, threads, limit)));
  }

  /** Would open a stream on each device for models in VRAM. Throws "unsupported" until GPUs compute here. */
  static forVram(config: ExecutorForVramConfig = {}): Executor {
    known(config, ["devices", "gpuClass", "memoryDomains", "cpuClass", "streams", "scratchLimit", "deferredLimit"]);
    const devices = ordinals("devices", config.devices);
    const gpuClass = optional("gpuClass", config.gpuClass, "string");
    const domains = ordinals("memoryDomains", config.memoryDomains);
    const cpuClass = optional("cpuClass", config.cpuClass, "string");
    const streams = [...(config.streams ?? [])];
    for (const stream of streams) {
      if (typeof stream !== "bigint") refuse("streams", "addresses as bigint", stream);
    }
    const scratch = count("scratchLimit", config.scratchLimit);
    const limit = count("deferredLimit", config.deferredLimit);
    return new Executor(
      compiled(() => backend.executorForVram(devices, gpuClass, domains, cpuClass, streams, scratch, limit)),
    );
  }

  /** Would borrow a ForkUnion `fu_pool_t` by its address. Throws "unsupported" until borrowing is designed. */
  static onPool(pool: bigint, config: ExecutorOnPoolConfig = {}): Executor {
    if (typeof pool !== "bigint") refuse("pool", "an address as bigint", pool);
    known(config, ["memoryDomains", "cpuClass", "deferredLimit"]);
    const domains = ordinals("memoryDomains", config.memoryDomains);
    const cpuClass = optional("cpuClass", config.cpuClass, "string");
    const limit = count("deferredLimit", config.deferredLimit);
    return new Executor(compiled(() => backend.executorOnPool(domains, cpuClass, pool, limit)));
  }

  /**
   * Waits until every call submitted before has ended, then sets what the threads do whenever they are idle: sleep,
   * or keep spinning so that the next call starts at once. Blocks the calling thread; a failure is one of the
   * executor, never one of the calls.
   */
  drain(mood: Mood = Mood.Parked): void {
    if (mood !== Mood.Parked && mood !== Mood.Spinning) refuse("mood", "Mood.Parked or Mood.Spinning", mood);
    compiled(() => this.compiled.drain(mood));
  }

  /** What the executor is and holds. */
  describe(): ExecutorDescription {
    return compiled(() => this.compiled.describe());
  }

  /** Waits until every call submitted before has ended, then gives the scratch back to the system. */
  trim(): void {
    compiled(() => this.compiled.trim());
  }

  /**
   * Runs every deferred call that was submitted, whose promises then resolve, and joins the threads. Blocks until
   * then. A second call does nothing. An executor that was forgotten is freed, without blocking, once collected.
   */
  free(): void {
    compiled(() => this.compiled.free());
  }

  /** Frees the executor at the end of a `using` block. */
  [Symbol.dispose](): void {
    this.free();
  }
}
