/**
 * `Symbol.dispose` came to Node with 18.18; where it is missing, `using` statements that a compiler lowers look for
 * the symbol under the same name. Imported first, so that classes can name their methods after it.
 */
if (typeof Symbol.dispose !== "symbol") {
  Object.defineProperty(Symbol, "dispose", { value: Symbol("Symbol.dispose") });
}

export {};
