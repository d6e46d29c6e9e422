// tests/browser.js: Chromium by its protocol, on two pipes, without any library. A test says
//     const b = require('./browser.js').open(CHROMIUM, FOLDER, SECONDS);
// and ends with b.end(): the last line is N passed, N failed. FOLDER: for the browser's profile.
'use strict';
const {spawn} = require('child_process'), path = require('path');

const FLAGS = ['--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--remote-debugging-pipe', '--no-first-run',
  '--disable-extensions'];
const wait = ms => new Promise(done => setTimeout(done, ms));

exports.open = (chromium, folder, seconds) => {
  const b = {passed: 0, failed: 0, page: '', events: [], wait};
  const browser = spawn(chromium, [...FLAGS, '--user-data-dir=' + path.join(folder, 'profile'), 'about:blank'],
    {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
  const answers = new Map();
  let number = 0, rest = '', session;

  b.is = (label, good, seen) => {
    if (good) b.passed++;
    else b.failed++;
    if (!good) console.log('FAIL ' + path.basename(b.page) + ': ' + label + (seen === undefined ? '' : ': ' + seen));
  };
  b.end = () => {
    browser.kill('SIGKILL');
    console.log(b.passed + ' passed, ' + b.failed + ' failed');
    process.exit(b.failed ? 1 : 0);
  };
  b.fail = what => {
    b.is(what, false);
    b.end();
  };
  browser.on('error', e => b.fail(e.message));
  setTimeout(() => b.fail('no answer in ' + seconds + ' s'), seconds * 1000).unref();

  browser.stdio[4].on('data', data => {
    const all = (rest + data).split('\0');
    rest = all.pop();
    for (const one of all) {
      const m = JSON.parse(one), done = answers.get(m.id);
      answers.delete(m.id);
      if (!done) b.events.push(m);
      else if (m.error) done.no(new Error(m.error.message));
      else done.yes(m.result);
    }
  });
  b.send = (method, params, plain) => new Promise((yes, no) => {
    answers.set(++number, {yes, no});
    browser.stdio[3].write(JSON.stringify({id: number, method, params: params || {}, sessionId: plain ? undefined : session}) + '\0');
  });
  b.start = async domains => {
    const target = await b.send('Target.createTarget', {url: 'about:blank'}, true);
    session = (await b.send('Target.attachToTarget', {targetId: target.targetId, flatten: true}, true)).sessionId;
    for (const domain of domains) await b.send(domain + '.enable');
  };
  b.run = async text => {
    const r = await b.send('Runtime.evaluate', {expression: text, returnByValue: true, awaitPromise: true});
    if (r.exceptionDetails) throw new Error(text + ': ' + r.exceptionDetails.exception.description);
    return r.result.value;
  };
  /* Waits for an expression to be true; returns whether it became so. */
  b.until = async (text, ms) => {
    for (const end = Date.now() + ms; Date.now() < end; await wait(20))
      if (await b.run(text)) return true;
    return false;
  };
  b.some = name => b.events.filter(e => e.method === name);
  b.load = async file => {
    const before = b.some('Page.loadEventFired').length;
    await b.send('Page.navigate', {url: 'file://' + path.resolve(file)});
    while (b.some('Page.loadEventFired').length === before) await wait(5);
  };
  b.key = async (name, code) => {
    for (const type of ['keyDown', 'keyUp'])
      await b.send('Input.dispatchKeyEvent', {type, key: name, code: name, windowsVirtualKeyCode: code});
  };
  b.click = async selector => {
    const [x, y] = await b.run(`(e => { e.scrollIntoView({block: 'center'}); const r = e.getClientRects()[0];
      return [r.left + r.width / 2, r.top + r.height / 2]; })(document.querySelector('${selector}'))`);
    for (const type of ['mousePressed', 'mouseReleased'])
      await b.send('Input.dispatchMouseEvent', {type, x, y, button: 'left', clickCount: 1});
  };
  b.pick = async (selector, file) => {
    const {root} = await b.send('DOM.getDocument', {});
    const {nodeId} = await b.send('DOM.querySelector', {nodeId: root.nodeId, selector});
    await b.send('DOM.setFileInputFiles', {nodeId, files: [path.resolve(file)]});
  };
  b.size = (width, height, mobile) =>
    b.send('Emulation.setDeviceMetricsOverride', {width, height, deviceScaleFactor: 1, mobile: !!mobile});
  b.dark = yes =>
    b.send('Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: yes ? 'dark' : 'light'}]});
  return b;
};
