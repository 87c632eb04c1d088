import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config(
  { ignores: ["dist/", "lib/", "src/generated/"] },
  js.configs.recommended,
  ...tseslint.configs.strict,
  {
    rules: {
      // the compiler tells of names that nobody defines, and knows Node's and the browser's
      "no-undef": "off",
      eqeqeq: ["error", "always", { null: "ignore" }],
      // a parameter that a base class or an interface passes and nobody here reads
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_" }]
    }
  }
);
