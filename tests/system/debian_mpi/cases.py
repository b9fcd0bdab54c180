# SPDX-License-Identifier: MIT
"""Programs of Debian 12 that are linked with Open MPI or MPICH. Inputs are written here, or the packages' examples."""

from case import Case

DOC = "/usr/share/doc"
SCALAPACK = "/usr/lib/x86_64-linux-gnu/scalapack/{mpi}-tests"
STARPU = "/usr/lib/x86_64-linux-gnu/starpu/mpi"
STARPU_SETTINGS = {"STARPU_NCPU": "1", "STARPU_WORKERS_NOBIND": "1"}
# What it measures of a computer, once: ranks that do it at the same time break each other's files.
STARPU_INPUTS = f"HOME=$PWD STARPU_NCPU=1 {STARPU}/stencil5 >/dev/null 2>&1 || true"
MUSIC = "/usr/lib/x86_64-linux-gnu/music-1.1.16"
SECONDS = r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)? ?(?:s|sec|secs|seconds|ms)\b"

# ScaLAPACK's tests with two values of each parameter, and grids of four ranks and fewer.
REDUCED = """
    awk '/[Nn]umber of (process )?grids/ {{ $1 = 3 }} /number of/ && !/grids/ && $1 > 2 {{ $1 = 2 }} 1' {0} >{1}"""


def scalapack(name, data, mpi="openmpi", ranks=(2, 4, 16), small=False):
    folder = SCALAPACK.format(mpi=mpi)
    return Case(f"scalapack-{name}-{mpi}" if mpi != "openmpi" else f"scalapack-{name}", "scalapack-mpi-test",
                f"{folder}/x{name}", REDUCED.format(f"/usr/share/scalapack/{data}", data), mpi=mpi, ranks=ranks,
                ignored=(r"(?<=[NY] ) +[\d.]+ +[-\d.]+(?= )", r"(?: +[-\d.]+){3} +(?=PASSED|FAILED)"), tolerance=1e-6,
                small=small)


# Alignments: taxa that differ in places, always the same.
ALIGNMENT = """\
awk 'BEGIN { srand(7); t = 12; n = 400; print " " t, n; for (j = 0; j < n; j++) b[j] = int(rand() * 4);
  for (i = 0; i < t; i++) { s = ""; for (j = 0; j < n; j++) { if (rand() < .08) b[j] = int(rand() * 4);
    s = s substr("ACGT", b[j] + 1, 1) } printf "taxon%02d   %s\\n", i, s } }' >a.phy
awk 'NR > 1 { print ">" $1; print $2 }' a.phy >a.fasta
"""

NWCHEM_WATER = """
        cat >h2o.nw <<'END'
start h2o
geometry units angstrom
 O 0.0 0.0 0.0
 H 0.757 0.586 0.0
 H -0.757 0.586 0.0
end
basis
 * library sto-3g
end
task scf energy
END"""

CASES = [
    # Linear algebra
    Case("hpcc", "hpcc", "hpcc", f"""
        zcat -f {DOC}/hpcc/examples/_hpccinf.txt >hpccinf.txt
        sed -i -E 's/^1000 .*Ns/64 Ns/; s/^80 .*NBs/16 NBs/' hpccinf.txt
        awk 'NR == 6 {{ $0 = "64 Ns" }} NR == 8 {{ $0 = "16 NBs" }} NR == 11 {{ $0 = "1 Ps" }} NR == 12 {{ $0 = "2 Qs" }}
          1' hpccinf.txt >x
        mv x hpccinf.txt""", output=False, files=("hpccoutf.txt",), ranks=(2, 4),
         kept="FAILED|Success|failed"),
    scalapack("dllt", "LLT.dat", small=True),
    scalapack("zlu", "LU.dat"),
    scalapack("dqr", "QR.dat"),
    scalapack("ssep", "SEP.dat", ranks=(4,)),
    scalapack("dllt", "LLT.dat", mpi="mpich", ranks=(2,), small=True),
    Case("pblas-3", "scalapack-mpi-test", SCALAPACK.format(mpi="openmpi") + "/PBLAS/dpb3tst",
         "cp /usr/share/scalapack/PBLAS/PDBLAS3TST.dat .", tolerance=1e-6),
    Case("blacs", "scalapack-mpi-test", SCALAPACK.format(mpi="openmpi") + "/xCbtest",
         "cp /usr/share/scalapack/BLACS/*.dat .", unordered=True, ranks=(4, 16),
         ignored=(r".*REPEATABLE SUM.*",), status=255),
    Case("mumps", "mumps-test", "/usr/lib/mumps/dsimpletest", "cp /usr/lib/mumps/input_simpletest_real in", stdin="in",
         ignored=(r".*(?:[Tt]ime|TIME).*", r".*(?:MBYTES|space in MB|Memory).*"), tolerance=1e-9, small=True),
    Case("mumps-complex", "mumps-test", "/usr/lib/mumps/zsimpletest", "cp /usr/lib/mumps/input_simpletest_cmplx in",
         stdin="in", ignored=(r".*(?:[Tt]ime|TIME).*", r".*MBYTES.*|.*space in MB.*"), tolerance=1e-9),
    Case("ptscotch-part", "ptscotch", "dgpart 4 grid.grf part.map", """
        awk 'BEGIN { n = 30; m = 0; for (i = 0; i < n; i++) for (j = 0; j < n; j++) { s = ""; d = 0;
          for (k = 0; k < 4; k++) { a = i + (k == 0) - (k == 1); b = j + (k == 2) - (k == 3);
            if (a >= 0 && a < n && b >= 0 && b < n) { s = s "\\t" (a * n + b); d++ } } l[i * n + j] = d s; m += d }
          print 0; print n * n "\\t" m; print "0\\t000"; for (v = 0; v < n * n; v++) print l[v] }' >grid.grf""",
         output=False, after="""
        awk 'NR > 1 { v[$1]; n[$2]++ } END { for (p in n) print p, (n[p] > 180 && n[p] < 270); print length(v) }' part.map |
          sort""", small=True),
    Case("ptscotch-order", "ptscotch", "dgord grid.grf order.txt", """
        awk 'BEGIN { n = 30; m = 0; for (i = 0; i < n; i++) for (j = 0; j < n; j++) { s = ""; d = 0;
          for (k = 0; k < 4; k++) { a = i + (k == 0) - (k == 1); b = j + (k == 2) - (k == 3);
            if (a >= 0 && a < n && b >= 0 && b < n) { s = s "\\t" (a * n + b); d++ } } l[i * n + j] = d s; m += d }
          print 0; print n * n "\\t" m; print "0\\t000"; for (v = 0; v < n * n; v++) print l[v] }' >grid.grf""",
         output=False,
         after="awk 'NR > 1 { print $2 }' order.txt | sort -nu | tail -n 1; wc -l <order.txt"),
    # Tasks, networks, files
    Case("netpipe", "netpipe-openmpi", "NPopenmpi -u 64 -o np.out", ranks=(2,), ignored=(r"-->.*", r"^\d+: \S+$"),
         unordered=True, small=True),
    Case("netpipe-mpich", "netpipe-mpich2", "NPmpich2 -u 64 -o np.out", ranks=(2,), mpi="mpich",
         ignored=(r"-->.*", r"^\d+: \S+$"), unordered=True),
    Case("starpu-ring", "starpu-examples", f"{STARPU}/nf_basic_ring", STARPU_INPUTS, unordered=True, kept="status",
         ignored=("^ +",), environment=STARPU_SETTINGS),
    Case("starpu-stencil", "starpu-examples", f"{STARPU}/stencil5", STARPU_INPUTS, after="echo ended",
         environment=STARPU_SETTINGS),
    Case("starpu-cholesky", "starpu-examples", f"{STARPU}/mpi_cholesky -size 480 -nblocks 4", STARPU_INPUTS,
         unordered=True, environment=STARPU_SETTINGS, ignored=(r".*(?:time|GFlop|ms).*",)),
    Case("pnetcdf-gen", "pnetcdf-bin", "ncmpigen -v 2 -o made.nc in.cdl", """
        printf 'netcdf in {\\ndimensions: x = 6 ; y = 4 ;\\nvariables: double v(x, y) ; v:unit = "m" ;\\n' >in.cdl
        printf 'data: v = %s ;\\n}\\n' "$(seq -s, 1 24)" >>in.cdl""", files=("made.nc",), small=True, ranks=(1, 2, 4)),
    Case("pnetcdf-dump", "pnetcdf-bin", "ncmpidump made.nc", """
        printf 'netcdf in {\\ndimensions: x = 6 ; y = 4 ;\\nvariables: double v(x, y) ; v:unit = "m" ;\\n' >in.cdl
        printf 'data: v = %s ;\\n}\\n' "$(seq -s, 1 24)" >>in.cdl
        ncmpigen -v 2 -o made.nc in.cdl""", unordered=True, ranks=(1, 2)),
    Case("ffindex", "ffindex", "ffindex_apply_mpi d.data d.index -d o.data -i o.index -- wc -c", f"""
        mkdir in; for i in $(seq 24); do seq $i >in/$i.txt; done; ffindex_build -s d.data d.index in""",
         unordered=True, files=("o.*",)),
    Case("music", "music-bin", f"music m.music", f"""
        printf 'stoptime=0.2\\n[a]\\nbinary={MUSIC}/constsource\\nargs=\\nnp=1\\n[b]\\nbinary={MUSIC}/waveconsumer\\n'"""
         """ >m.music; printf 'args=d\\nnp=1\\na.contdata -> b.wavedata[2]\\n' >>m.music""", ranks=(2,),
         unordered=True, files=("d*",)),
    # Trees of life
    Case("phyml", "phyml", "phyml-mpi -i a.phy -d nt -m HKY85 -b 8 -o n --r_seed 5 --no_memory_check --quiet",
         ALIGNMENT, output=False, files=("*tree*",), ranks=(2, 4), small=True),
    Case("examl", "examl", "/usr/lib/examl/bin/examl-sse3 -s a.binary -t t.nwk -m GAMMA -n out -p 7", ALIGNMENT + """
        parse-examl -s a.phy -m DNA -n a >/dev/null
        awk 'NR > 1 { t[NR] = $1 } END { s = "(" t[2] "," t[3]; for (i = 4; i < NR; i++) s = "(" s ")" "," t[i];
          gsub(/^\\(+/, "&", s); n = NR; r = "(" t[2] "," t[3] ")"; for (i = 4; i < n; i++) r = "(" r "," t[i] ")";
          print "(" substr(r, 2, length(r) - 2) "," t[n] ");" }' a.phy >t.nwk""",
         output=False, files=("ExaML_result*",), tolerance=1e-6),
    Case("iqtree2", "iqtree", "iqtree2-mpi -s a.phy -m HKY -seed 5 -nt 1 -redo -quiet", ALIGNMENT, files=("*.iqtree",),
         output=False, kept=r"^Input data|^Log-likelihood of the tree|^BEST", ignored=(r"\(s\.e\..*",), tolerance=1e-4),
    Case("tree-puzzle", "tree-ppuzzle", "tree-ppuzzle -randseed5 -prefix=o a.phy",
         ALIGNMENT + "yes | head -n 20 >in", stdin="in",
         output=False, files=("o.tree", "o.dist"), tolerance=1e-6, small=True),
    Case("mrbayes", "mrbayes-mpi", "/usr/lib/mrbayes-mpi/mb-mpi in.nex", ALIGNMENT + """
        { echo '#NEXUS'; echo 'begin data; dimensions ntax=12 nchar=400; format datatype=dna; matrix'
          sed 1d a.phy; echo '; end; begin mrbayes; set autoclose=yes nowarn=yes seed=5 swapseed=6;'
          echo 'mcmc ngen=400 samplefreq=50 printfreq=100 nruns=2 nchains=2 diagnfreq=200; end;'; } >in.nex""",
         after="wc -l *.p *.t", output=False, ranks=(2,)),  # on 4 SIGSEGV, under Debian's mpirun 11 of 12 times
    Case("hyphy", "hyphy-mpi", "HYPHYMPI in.bf", ALIGNMENT + """
        cat >in.bf <<'END'
DataSet d = ReadDataFile("a.fasta");
DataSetFilter f = CreateFilter(d, 1);
HarvestFrequencies(F, f, 1, 1, 1);
global k = 1;
M = {{*, t, k*t, t}{t, *, t, k*t}{k*t, t, *, t}{t, k*t, t, *}};
Model m = (M, F);
for (r = 1; r < MPI_NODE_COUNT; r = r + 1) { MPISend(r, "return " + r + " * " + r + ";"); }
s = 0;
for (r = 1; r < MPI_NODE_COUNT; r = r + 1) { MPIReceive(-1, from, got); s = s + got; }
fprintf(stdout, "nodes ", MPI_NODE_COUNT, " sum ", s, " frequencies ", F, "\\n");
END""", small=True, unordered=True),
    Case("prime-phylo", "prime-phylo", "tree2leafnames t.nwk", "echo '((a:1,b:2):1,(c:1,d:3):2);' >t.nwk",
         unordered=True),
    # Genomes
    Case("abyss", "abyss", "/usr/lib/abyss/ABYSS-P -k25 -c0 -e0 -q3 -o contigs.fa r.fq", f"""
        zcat {DOC}/abyss/test-data/reads1.fastq.gz | head -4000 >r.fq""", output=False, files=("contigs.fa",),
         loose=True, unordered=True, ignored=(r"^>.*",)),
    Case("murasaki", "murasaki-mpi", "murasaki-mpi -p101101111 -n o -d . --quickhash=1 a.fa b.fa", """
        awk 'BEGIN { srand(3); s = ""; for (i = 0; i < 4000; i++) s = s substr("ACGT", int(rand() * 4) + 1, 1);
          print ">a" >"a.fa"; print s >"a.fa"; print ">b" >"b.fa";
          print substr(s, 2001) substr(s, 1, 2000) >"b.fa" }'""", output=False, files=("o.anchors",), unordered=True),
    Case("pyrodist", "ampliconnoise", "PyroDist -in c.dat -out c", f"""
        xz -dc {DOC}/ampliconnoise/examples/C005.dat.xz | awk 'NR == 1 {{ print 60, $2 }} NR > 1 && NR < 62' >c.dat""",
         output=False, files=("c.fdist",), small=True, environment={"PYRO_LOOKUP_FILE":
         "/usr/share/ampliconnoise/Data/LookUp_E123.dat"}),
    Case("seqdist", "ampliconnoise", "SeqDist -in a.fasta", ALIGNMENT, environment={"SEQ_LOOKUP_FILE":
         "/usr/share/ampliconnoise/Data/Tran.dat"}),
    # Chemistry, matter
    Case("lammps", "lammps", "lmp -in in.lj -log none", """
        cat >in.lj <<'END'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 8 0 8 0 8
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
thermo 10
dump d all custom 50 dump.txt id x y z
dump_modify d sort id
run 50
END""", files=("dump.txt",), tolerance=1e-9, small=True, ignored=(
            r"^(?:Loop time|Performance|.*% CPU|Total wall|Pair |Neigh |Comm |Output |Modify |Other |Total # of|Per MPI"
            r"|Section|MPI task|Nlocal|Nghost|Neighs|Histogram|Ave neighs|LAMMPS|OMP_NUM|  using).*",
            r".*MPI processor grid.*", r".*CPU = .*")),
    Case("liggghts", "liggghts", "liggghts -in in.grains -log none", """
        cat >in.grains <<'END'
atom_style granular
atom_modify map array
boundary m m m
newton off
communicate single vel yes
units si
region reg block -0.05 0.05 -0.05 0.05 0.0 0.15 units box
create_box 1 reg
neighbor 0.002 bin
fix m1 all property/global youngsModulus peratomtype 5.e6
fix m2 all property/global poissonsRatio peratomtype 0.45
fix m3 all property/global coefficientRestitution peratomtypepair 1 0.95
fix m4 all property/global coefficientFriction peratomtypepair 1 0.05
pair_style gran model hertz tangential history
pair_coeff * *
timestep 0.00001
fix gravi all gravity 9.81 vector 0.0 0.0 -1.0
lattice sc 0.012
create_atoms 1 region reg
set group all diameter 0.01 density 2500
fix integr all nve/sphere
thermo 100
dump d all custom 200 dump.txt id x y z
dump_modify d sort id
run 200
END""", files=("dump.txt",), output=False, tolerance=1e-4),
    Case("gromacs", "gromacs", "gmx_mpi mdrun -s t.tpr -ntomp 1 -reprod -nsteps 20 -g md.log -pin off", """
        printf '%s\\n' '#include "oplsaa.ff/forcefield.itp"' '#include "oplsaa.ff/spc.itp"' '[ system ]' water \\
          '[ molecules ]' >t.top
        gmx_mpi solvate -cs spc216 -box 2.2 2.2 2.2 -o w.gro -p t.top >/dev/null 2>&1
        printf '%s\\n' 'integrator = md' 'dt = 0.001' 'nsteps = 20' 'nstxout = 20' 'cutoff-scheme = Verlet' \\
          'coulombtype = PME' 'rcoulomb = 0.9' 'rvdw = 0.9' 'gen-vel = yes' 'gen-seed = 7' >t.mdp
        gmx_mpi grompp -f t.mdp -c w.gro -p t.top -o t.tpr -maxwarn 5 >/dev/null 2>&1
        test -s t.tpr""", output=False, files=("confout.gro",), tolerance=1e-3, ranks=(2, 4)),
    Case("quantum-espresso", "quantum-espresso", "pw.x -nd 1 -in h.in", """
        cat >ld1.in <<'END'
&input
 title='H', prefix='H', zed=1.0, rel=0, config='1s1.0', iswitch=3, dft='PZ'
/
&inputp
 pseudotype=1, nlcc=.false., lloc=0, tm=.true., file_pseudopw='H.UPF'
/
1
1S 1 0 1.00 0.00 0.80 0.80 0.0
END
        ld1.x <ld1.in >/dev/null
        cat >h.in <<'END'
&control
 calculation='scf', pseudo_dir='.', outdir='.', prefix='h'
/
&system
 ibrav=1, celldm(1)=8.0, nat=2, ntyp=1, ecutwfc=16.0
/
&electrons
/
ATOMIC_SPECIES
H 1.008 H.UPF
ATOMIC_POSITIONS bohr
H 0.0 0.0 0.0
H 0.0 0.0 1.4
K_POINTS automatic
2 2 2 0 0 0
END""", tolerance=1e-4, ranks=(2, 4), more=("quantum-espresso-data",), ignored=(
            r".*(?:CPU|WALL|starts on|ran on|Parallel version|MPI processes|RAM|cpu time|was run on|RAM per|Waves|nodes"
            r"|iterations).*", r".*(?:Dense|smooth).*grid.*|.*terminated on.*", r"^ +(?:Min|Max|Sum) .*",
            r".*calls.*"), environment={
            "MPLCONFIGDIR": "/tmp"}),
    Case("abinit", "abinit", "abinit t.abi", """
        cat >h.psp <<'END'
Goedecker-Teter-Hutter hydrogen
1 1 960508 zatom,zion,pspdat
2 1 0 0 2001 0. pspcod,pspxc,lmax,lloc,mmax,r2well
0.2000000 -4.0663326 0.6778322 0 0 rloc, c1, c2, c3, c4
0 0 0 rs, h1s, h2s
0 0 rp, h1p
1.36 .2 0.6 rcutoff, rloc
END
        cat >t.abi <<'END'
acell 8 8 8
ntypat 1
znucl 1
natom 2
typat 1 1
xcart 0 0 -0.7  0 0 0.7
pseudos "h.psp"
ecut 8
kptopt 1
ngkpt 2 2 2
nstep 6
toldfe 1e-6
END""", output=False, files=("t.abo",), tolerance=1e-4, ranks=(2, 4), ignored=(
            r".*(?:[Cc]pu|[Ww]all|time|CPU|Memory|memory|MB|MPI|Running|nproc|Ranks|date|started).*",
            r".*(?:Date|path|host|\.Version|Suggested).*", r".*\( at ..h.. \).*")),
    Case("elk", "elk-lapw", "elk-lapw", f"""
        zcat -f {DOC}/elk-lapw/examples/basic/Al/elk.in >elk.in
        printf '\\nmaxscl\\n 4\\n' >>elk.in
        sed -i "s#'../../../species/'#'/usr/share/elk-lapw/species/'#; s/4  4  4/2 2 2/" elk.in""", output=False,
         files=("TOTENERGY.OUT", "EIGVAL.OUT", "EFERMI.OUT"), tolerance=1e-6),
    Case("molds", "molds", "molds ch4.in", f"cp {DOC}/molds/examples/ch4_pm3.in ch4.in", unordered=True,
         note="its threads call MPI below the level that it asks for", tolerance=1e-6,
         ignored=(r".*(?:time|Time|memory|Date|[Ss]tart|OMP|MPI|<<<|>>>).*", SECONDS), small=True),
    Case("mpqc", "mpqc", "mpqc h2o.in", """
        printf '%s\\n' 'molecule:' ' O 0.172 0.0 0.0' ' H 0.745 0.0 0.754' ' H 0.745 0.0 -0.754' 'optimize: no' \\
          'checkpoint: no' 'method: HF' 'basis: STO-3G' >h2o.in""", tolerance=1e-6,
         ranks=(2, 4), kept=r"energy|iter|n\(basis\)"),
    Case("nwchem", "nwchem-openmpi", "nwchem.openmpi h2o.nw", NWCHEM_WATER, ranks=(2, 4), tolerance=1e-9,
         kept=r"Total SCF|One-electron|Two-electron|Nuclear rep"),
    Case("nwchem-mpich", "nwchem-mpich", "nwchem.mpich h2o.nw", NWCHEM_WATER, mpi="mpich", ranks=(2,), tolerance=1e-9,
         kept=r"Total SCF|One-electron|Two-electron|Nuclear rep"),
    Case("cp2k", "cp2k", "cp2k.psmp -i in.inp", f"cp {DOC}/cp2k/examples/H2O-hfx-1.inp in.inp", tolerance=1e-9,
         ranks=(2, 4), environment={"CP2K_DATA_DIR": "/usr/share/cp2k"},
         kept=r"ENERGY\||Total energy|Overlap energy|Core Hamiltonian"),
    Case("bagel", "bagel", "BAGEL in.json", """
        cat >in.json <<'END'
{"bagel": [{"title": "molecule", "basis": "svp", "df_basis": "svp-jkfit", "angstrom": true, "geometry": [
 {"atom": "H", "xyz": [0, 0, 0]}, {"atom": "F", "xyz": [0, 0, 0.9]}]}, {"title": "hf"}]}
END""", mpi="mpich", ranks=(2,), tolerance=1e-6, ignored=(r".*(?:[Tt]ime|process|thread|elapsed).*",
                                                       r" +\d+\.\d\d$")),
    Case("mpb", "mpb-mpi", "mpb-mpi in.ctl", """
        cat >in.ctl <<'END'
(set! num-bands 4)
(set! k-points (list (vector3 0 0 0) (vector3 0.5 0 0) (vector3 0.5 0.5 0)))
(set! geometry (list (make cylinder (center 0 0 0) (radius 0.2) (height infinity)
  (material (make dielectric (epsilon 12))))))
(set! geometry-lattice (make lattice (size 1 1 no-size)))
(set! resolution 16)
(set! deterministic? true)
(run-tm)
END""", mpi="openmpi", tolerance=1e-3, ignored=(r".*(?:elapsed|iteration|Using MPI|processes|took|time).*",)),
    Case("meep", "meep-openmpi", "meep in.ctl", """
        cat >in.ctl <<'END'
(set! geometry-lattice (make lattice (size 8 4 no-size)))
(set! geometry (list (make block (center 0 0) (size infinity 1 infinity) (material (make dielectric (epsilon 12))))))
(set! sources (list (make source (src (make continuous-src (frequency 0.15))) (component Ez) (center -3 0))))
(set! pml-layers (list (make pml (thickness 1.0))))
(set! resolution 8)
(run-until 20)
(print "field: " (get-field-point Ez (vector3 1 0 0)) "\\n")
END""", tolerance=1e-6, ignored=(r".*(?:[Ee]lapsed|time for|s/step|took|\d s,|processes|timestepping|Initializing).*",
                              r"^ .*= [\d.]+ s.*")),
    # Flows, fields, bodies
    Case("openfoam", "openfoam", "icoFoam -parallel -case for{n}", f"""
        cp -r {DOC}/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity/* .
        find . -name '*.gz' -exec gunzip {{}} +
        sed -i 's/^endTime .*/endTime 0.05;/; s/^writeInterval .*/writeInterval 10;/' system/controlDict
        export WM_PROJECT_DIR=/usr/share/openfoam; blockMesh >/dev/null
        for n in 2 4 16; do
          printf 'FoamFile {{ version 2.0; format ascii; class dictionary; object decomposeParDict; }}\\n' \\
            >system/decomposeParDict
          printf 'numberOfSubdomains %s;\\nmethod simple;\\nsimpleCoeffs {{ n (%s 1 1); delta 0.001; }}\\n' $n $n \\
            >>system/decomposeParDict
          decomposePar -force >/dev/null; mkdir for$n; cp -r 0 constant system for$n; mv processor* for$n
        done""", more=("openfoam-examples",), tolerance=1e-6, kept=r"residual|Courant|continuity|internalField|^[-\d.e]+$", files=("for*/processor0/0.05/p",), environment={"WM_PROJECT_DIR":
             "/usr/share/openfoam", "FOAM_SIGFPE": "false"}),
    Case("freefem", "freefem++", "FreeFem++-mpi -nw -v 0 in.edp", """
        cat >in.edp <<'END'
mesh Th = square(20, 20);
fespace Vh(Th, P1);
Vh u, v;
solve P(u, v) = int2d(Th)(dx(u)*dx(v) + dy(u)*dy(v)) - int2d(Th)((1 + mpirank)*v) + on(1, 2, 3, 4, u = 0);
real s = int2d(Th)(u), t;
mpiAllReduce(s, t, mpiCommWorld, mpiSUM);
if (mpirank == 0) cout << mpisize << " ranks, sum " << t << endl;
END""", tolerance=1e-6, ignored=(r".*(?:times|CPU|version|License).*",)),
    Case("apbs", "apbs", "apbs in.apbs", """
        echo 'ATOM 1 I ION 1 0.000 0.000 0.000 1.00 3.00' >ion.pqr
        cat >in.apbs <<'END'
read
 mol pqr ion.pqr
end
elec name solv
 mg-manual
 dime 33 33 33
 grid 0.5 0.5 0.5
 gcent mol 1
 mol 1
 lpbe
 bcfl mdh
 pdie 1.0
 sdie 78.54
 chgm spl2
 srfm mol
 srad 1.4
 swin 0.3
 sdens 10.0
 temp 298.15
 calcenergy total
end
print elecEnergy solv end
quit
END""", unordered=True, ignored=(r".*(?:time|memory|MB|PID|Rank).*",), tolerance=1e-9, ranks=(2, 4)),
    Case("gyoto", "gyoto-bin", "gyoto --help", unordered=True, ranks=(2,)),
    Case("dolfinx", "fenicsx-performance-tests", "dolfinx-scaling-test --problem_type poisson --ndofs 1000",
         ranks=(2, 4), kept="norm|Problem type|Num processes", tolerance=1e-4,
         note="PT-Scotch calls MPI from threads below the level that it asks for: under Debian's mpirun three "
         "of twelve runs hang"),
    # Languages, tools
    Case("parform", "form", "parform in.frm", """
        cat >in.frm <<'END'
Off statistics;
Symbols x, y, z;
Local F = (x + 2*y + 3*z)^12;
.sort
id x = y - z;
Print;
.end
END""", small=True, ignored=(r".*(?:sec|FORM|ParFORM).*",)),
    Case("neuron", "neuron", "nrniv -mpi in.hoc", """
        cat >in.hoc <<'END'
objref pc
pc = new ParallelContext()
create soma
soma insert hh
objref s
soma s = new IClamp(0.5)
s.amp = 10 * (pc.id + 1)
s.dur = 5
finitialize(-65)
tstop = 5
while (t < tstop) fadvance()
x = pc.allreduce(soma.v(0.5), 1)
if (pc.id == 0) printf("%d hosts, sum of voltages %.12g\\n", pc.nhost, x)
pc.barrier()
quit()
END""", small=True, kept="hosts"),
    Case("yorick", "yorick-mpy-openmpi", "mpy.openmpi -j testmp.i -batch in.i", """
        zcat /usr/share/doc/yorick-mpy-common/examples/testmp.i.gz >testmp.i
        printf 'testmp2;\\nquit;\\n' >in.i""", unordered=True, ranks=(2,)),
    Case("yorick-mpich", "yorick-mpy-mpich2", "mpy.mpich2 -j testmp.i -batch in.i", """
        zcat /usr/share/doc/yorick-mpy-common/examples/testmp.i.gz >testmp.i
        printf 'testmp2;\\nquit;\\n' >in.i""", unordered=True, mpi="mpich", ranks=(2,)),
    Case("mplrs", "mplrs", "mplrs cube.ine", """
        { echo cube; echo H-representation; echo begin; echo '10 6 rational'
          for i in 1 2 3 4 5; do for s in 1 -1; do awk -v i=$i -v s=$s 'BEGIN { r = "1";
            for (j = 1; j <= 5; j++) r = r " " (j == i ? s : 0); print r }'; done; done; echo end; } >cube.ine""",
         ranks=(4, 16), unordered=True, ignored=(r"^\*.*",), small=True),
    Case("gretl", "gretl", "gretlmpi -q in.inp", """
        printf 'matrix m = {$mpirank + 1}\\nmpireduce(&m, sum)\\nif $mpirank == 0\\n print m\\nendif\\n' >in.inp""",
         ),
    Case("petsc4py", "python3-petsc4py", "/usr/bin/python3 in.py", """
        cat >in.py <<'END'
from petsc4py import PETSc
n = 200
A = PETSc.Mat().createAIJ([n, n], nnz=3)
first, last = A.getOwnershipRange()
for i in range(first, last):
    A[i, i] = 2
    if i > 0: A[i, i - 1] = -1
    if i < n - 1: A[i, i + 1] = -1
A.assemble()
x, b = A.createVecs()
b.set(1)
k = PETSc.KSP().create()
k.setOperators(A)
k.setType("cg")
k.getPC().setType("jacobi")
k.setTolerances(rtol=1e-10)
k.solve(b, x)
PETSc.Sys.Print("ranks", PETSc.COMM_WORLD.size, "norm %.9g" % x.norm(), "iterations", k.getIterationNumber())
END""", tolerance=1e-7, small=True),
    Case("slepc4py", "python3-slepc4py", "/usr/bin/python3 in.py", """
        cat >in.py <<'END'
from petsc4py import PETSc
from slepc4py import SLEPc
n = 100
A = PETSc.Mat().createAIJ([n, n], nnz=3)
first, last = A.getOwnershipRange()
for i in range(first, last):
    A[i, i] = 2 + i % 7
    if i > 0: A[i, i - 1] = -1
    if i < n - 1: A[i, i + 1] = -1
A.assemble()
E = SLEPc.EPS().create()
E.setOperators(A)
E.setProblemType(SLEPc.EPS.ProblemType.HEP)
E.solve()
PETSc.Sys.Print("ranks", PETSc.COMM_WORLD.size, "eigenvalue %.8g" % E.getEigenvalue(0).real)
END""", tolerance=1e-6),
    Case("mpi4py", "python3-mpi4py", "/usr/bin/python3 in.py", """
        cat >in.py <<'END'
from mpi4py import MPI
w = MPI.COMM_WORLD
print(w.rank, w.size, w.allreduce(w.rank + 1), w.alltoall(list(range(w.size))))
END""", unordered=True, small=True),
    Case("h5py", "python3-h5py-mpi", "/usr/bin/python3 in.py", """
        cat >in.py <<'END'
from mpi4py import MPI
import h5py._debian_h5py_mpi as h5py
w = MPI.COMM_WORLD
with h5py.File("o.h5", "w", driver="mpio", comm=w) as f:
    d = f.create_dataset("x", (w.size * 10,), dtype="i4")
    d[w.rank * 10:(w.rank + 1) * 10] = range(w.rank * 10, w.rank * 10 + 10)
with h5py.File("o.h5", "r") as f:
    if w.rank == 0:
        print(sum(f["x"][:]))
END"""),
    Case("rmpi", "r-cran-rmpi", "Rscript in.R", """
        cat >in.R <<'END'
library(Rmpi)
r <- mpi.comm.rank(0)
s <- mpi.reduce(as.double(r + 1), type = 2, op = "sum", comm = 0)
if (r == 0) cat("sum", s, "\\n")
invisible(mpi.barrier(0))
mpi.quit()
END"""),
    Case("ruby-mpi", "ruby-mpi", "ruby in.rb", """
        printf '%s\\n' 'require "mpi"' 'MPI.Init' 'w = MPI::Comm::WORLD' 'puts "#{w.rank} of #{w.size}"' 'w.Barrier' \\
          'MPI.Finalize' >in.rb""", unordered=True),
]
BY_NAME = {case.name: case for case in CASES}
