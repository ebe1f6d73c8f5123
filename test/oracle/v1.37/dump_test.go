package oracle
import ("testing";"os";"encoding/json";"github.com/svcproxy/kubectl-svcproxy/test/oracle/gen")
func TestDump(t *testing.T){ quiet(t); w:=gen.New(1,60,"v1.37.1","AllowServiceExternalIPs"); r,err:=write(w); if err!=nil{t.Fatal(err)}; f:=w.Files(r); os.WriteFile("/tmp/dump4.txt",f["iptables-save.txt"],0o644);os.WriteFile("/tmp/dump6.txt",f["ip6tables-save.txt"],0o644)
for _,s:=range w.Services { if s.Name=="svc-16" { b,_:=json.Marshal(s); t.Log(string(b)) } }
}
