import { defineConfig } from "vitest/config";

// what stands between a view and its host: these tests put other modules in place of the host's, and share none
const hosts = ["src/*.test.ts", "src/{lab,standalone,widgets}/**/*.test.ts"];

export default defineConfig({
  test: {
    environment: "jsdom",
    projects: [
      { extends: true, test: { name: "hosts", include: hosts } },
      // one page for all of them: a page for each file takes twice as long
      { extends: true, test: { name: "views", include: ["src/**/*.test.ts"], exclude: hosts, isolate: false } }
    ]
  }
});
