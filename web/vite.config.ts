import { svelte } from '@sveltejs/vite-plugin-svelte'
import { defineConfig } from 'vitest/config'

// File names carry no hash: what is committed is compared byte by byte, and the daemon revalidates with an ETag.
export default defineConfig({
  base: './',
  plugins: [svelte()],
  build: {
    target: 'es2022',
    outDir: process.env.WEFT_PAGE_OUT ?? '../internal/web/dist',
    emptyOutDir: true,
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    reportCompressedSize: true,
    rollupOptions: {
      output: {
        entryFileNames: 'assets/page.js',
        chunkFileNames: 'assets/[name].js',
        assetFileNames: 'assets/page[extname]',
      },
    },
  },
  test: { include: ['src/**/*.test.ts'] },
})
