import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { defineConfig, type Plugin } from "vite";

/** All files from which the build is made, in the order of their names. */
function sources(): string[] {
  const below = (folder: string): string[] =>
    readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
      entry.isDirectory() ? below(`${folder}/${entry.name}`) : [`${folder}/${entry.name}`],
    );
  return [...below("src"), "index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts"].sort();
}

/** Writes the digest of the sources beside the build: a test compares them, and needs no Node for it. */
function stamp(): Plugin {
  return {
    name: "stamp",
    generateBundle() {
      const digest = createHash("sha256");
      for (const path of sources()) {
        const content = createHash("sha256").update(readFileSync(join(import.meta.dirname, path))).digest("hex");
        digest.update(`${path} ${content}\n`);
      }
      const source = `${JSON.stringify({ sources: digest.digest("hex") })}\n`;
      this.emitFile({ type: "asset", fileName: "build.json", source });
    },
  };
}

export default defineConfig({
  base: "./",
  plugins: [stamp()],
  build: {
    outDir: process.env["PENSTOCK_STATIC"] ?? "../static",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 700,
  },
  worker: { format: "es" },
  server: { proxy: { "^/(?!src|node_modules|@|index.html).+": process.env["PENSTOCK"] ?? "http://127.0.0.1:8081" } },
});
