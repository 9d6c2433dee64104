"use strict";

/** Whether the C library of this process is musl; where glibc runs, its version is in the report. */
function isMusl() {
  if (process.platform !== "linux" || typeof process.report?.getReport !== "function") return false;
  process.report.excludeNetwork = true;
  return process.report.getReport().header?.glibcVersionRuntime === undefined;
}

/** The platform that an addon is built for, like "linux-x64" or "linux-x64-musl". */
exports.platform = `${process.platform}-${process.arch}${isMusl() ? "-musl" : ""}`;

/** The name of the addon of this platform in the folder of the package. */
exports.addonName = `uform.${exports.platform}.node`;
