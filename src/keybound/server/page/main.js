// The page: takes recordings from files, the microphone or a link, and has them checked in turn.

import { addCard } from "./card.js";
import { byService, inBrowser } from "./checks.js";
import { decode, Problem } from "./decode.js";
import { asWav, record } from "./microphone.js";
import { clock } from "./words.js";

const LONGEST_S = 60; // of a recording from the microphone
const element = (id) => document.getElementById(id);
const site = await (await fetch(new URL("site.json", import.meta.url))).json();
let turn = Promise.resolve(); // one recording is checked at a time

element("modes").hidden = !(site.service && site.private);
element("link").hidden = !(site.service && site.links);
element("only-private").hidden = site.service || !site.private;
element("microphone").hidden = !navigator.mediaDevices; // absent over plain http
if (!site.service) element("private").checked = true;

const isPrivate = () => element("private").checked;

/** Check a file in the chosen mode, after those before it. */
function check(name, file) {
  const alone = isPrivate();
  const card = addCard(element("results"), name, alone ? "in this browser" : "on the server");
  turn = turn.then(async () => {
    try {
      if (file.size > site.most_bytes) {
        throw new Problem(`the file has more than ${site.most_bytes / (1 << 20)} MiB`, "cut it, or compress it");
      }
      const sound = decode(await file.arrayBuffer());
      // The service reads formats that the browser does not: then there is no picture.
      const heard = alone ? await sound : await sound.catch(() => undefined);
      if (heard && heard.channels[0].length > site.longest_s * heard.rate) {
        throw new Problem(`the recording is longer than ${site.longest_s / 60} minutes`, "cut it");
      }
      const found = alone ? await inBrowser(heard, site.detector) : await byService(file);
      card.show(found, heard, file);
    } catch (error) {
      card.fail(error instanceof Problem ? error : new Problem("something went wrong", String(error)));
    }
  });
}

function checkLink(url) {
  const card = addCard(element("results"), url, "on the server");
  turn = turn.then(() => byService({ url }).then((found) => card.show(found), (problem) => card.fail(problem)));
}

function checkAll(files) {
  for (const file of files) check(file.name, file);
}

// Files

element("files").addEventListener("change", ({ target }) => {
  checkAll(target.files);
  target.value = ""; // so that the same file can be chosen again
});
const zone = element("drop");
for (const kind of ["dragenter", "dragover"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
}
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) zone.classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  zone.classList.remove("over");
  checkAll(event.dataTransfer.files);
});

// A link

element("link").addEventListener("submit", (event) => {
  event.preventDefault();
  checkLink(element("url").value.trim());
  element("url").value = "";
});

// The microphone

let recording;
const button = element("microphone");
const usual = button.textContent;

async function stop() {
  const { stop: end } = recording;
  recording = undefined;
  button.textContent = usual;
  button.classList.remove("on");
  check("Microphone", asWav(await end()));
}

button.addEventListener("click", async () => {
  if (recording) return stop();
  button.disabled = true;
  try {
    recording = await record((seconds) => {
      if (!recording) return;
      button.textContent = `Stop and check (${clock(seconds)})`;
      if (seconds >= LONGEST_S) stop();
    });
    button.classList.add("on");
  } catch (problem) {
    addCard(element("results"), "Microphone").fail(problem);
  } finally {
    button.disabled = false;
  }
});

document.documentElement.dataset.ready = "yes";
