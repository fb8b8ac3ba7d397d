// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::cli {

// The status page: one static page that asks for /status.json every second. Text from the fleet
// only ever becomes text nodes, never markup.
inline constexpr const char* kStatusPage = R"html(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>weft</title>
<style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem;color:#1b2733;background:#fff}
h1{font-size:1.3rem}table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #d9dfe5;font-variant-numeric:tabular-nums}
.bad{color:#a3200d}.ok{color:#13693c}#note{color:#5b6874}
@media (prefers-color-scheme:dark){body{color:#e4e9ee;background:#14191e}th,td{border-color:#2c353e}.bad{color:#ff8a75}.ok{color:#67cf97}}
</style></head><body>
<h1>weft</h1><p id="fleet"></p><p id="refit"></p><p id="last"></p>
<table><thead><tr><th>Member</th><th>State</th><th>Version</th><th>Root</th><th>Ready</th><th>Parent</th><th>Bytes</th><th>Cause</th></tr></thead>
<tbody id="members"></tbody></table><p id="note"></p>
<script>
const at=id=>document.getElementById(id);
const cell=(row,text,name)=>{const td=document.createElement("td");td.textContent=text;if(name)td.className=name;row.append(td)};
const cause=c=>c?c.code+": "+c.detail:"";
async function show(){
  try{
    const s=await(await fetch("status.json",{cache:"no-store"})).json();
    at("fleet").textContent="fleet "+s.fleet+", epoch "+s.epoch+", version "+s.version+", root "+s.root;
    const r=s.refit,l=s.last;
    at("refit").textContent=r?"refit "+r.id+": "+r.phase+", "+r.base_version+" to "+r.target_version+", "+r.yes+" of "+r.planned+" prepared, "+r.no+" no, "+r.lost+" lost, "+(r.open_ms/1000).toFixed(1)+" s, "+r.shape:"no refit open";
    at("last").textContent=l?"last "+l.id+": "+l.verdict+", "+l.applied+" of "+l.planned+" applied "+cause(l.cause):"";
    const rows=s.members.map(m=>{const tr=document.createElement("tr");
      cell(tr,m.id+(m.role==="producer"?" (producer)":""));
      cell(tr,m.state,["lost","lagging","needs_reseed"].includes(m.state)?"bad":m.state==="clean"?"ok":"");
      cell(tr,m.version);cell(tr,m.root.slice(0,12));cell(tr,m.ready?"yes":"no",m.ready?"ok":"");
      cell(tr,m.parent);cell(tr,m.bytes);cell(tr,cause(m.cause),"bad");return tr});
    at("members").replaceChildren(...rows);at("note").textContent="";
  }catch(e){at("note").textContent="no answer: "+e}
  setTimeout(show,1000);
}
show();
</script></body></html>
)html";

}  // namespace weft::cli
