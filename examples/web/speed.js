// node examples/web/speed.js build/web/cmha.wasm 'NAME=VALUE ..': tokens a second of the page's training step, as web.c's main prints natively
'use strict';
const [file, words] = process.argv.slice(2), STEPS = 50, TEXT = 65536;

async function main() {
  const env = {emscripten_notify_memory_growth() {}};
  const x = (await WebAssembly.instantiate(require('fs').readFileSync(file), {env})).instance.exports;
  const put = data => {
    const at = x.web_take(data.length);
    new Uint8Array(x.memory.buffer).set(data, at);
    return at;
  };
  const check = status => {
    const all = new Uint8Array(x.memory.buffer, x.web_error());
    if (status) throw new Error(new TextDecoder().decode(all.slice(0, all.indexOf(0))));
  };
  x._initialize();
  check(x.web_make(put(Buffer.from(words + '\0')), 1));
  check(x.web_text(put(Uint8Array.from({length: TEXT}, (_, i) => 32 + i * i % 89)), TEXT));
  check(x.web_step());
  const each = new Float64Array(x.memory.buffer, x.web_numbers(), 8)[4];
  let best = 0;
  for (let i = 0; i < STEPS; i++) {
    const before = performance.now();
    check(x.web_step());
    best = Math.max(best, each / (performance.now() - before) * 1000);
  }
  console.log(`${best.toFixed(0)} tokens/s (the fastest of ${STEPS} steps), one thread, WebAssembly, node ${process.version}`);
}
main().catch(e => {
  console.error(e.message);
  process.exit(1);
});
