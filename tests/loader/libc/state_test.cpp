// SPDX-License-Identifier: MIT
// Each instance has its own libc state: random numbers, environment, static buffers, conversions, locale, time zone.
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>

#include "side_by_side.hpp"

namespace aplib::loader::test {
namespace {

class LibcState : public SideBySide {};

TEST_F(LibcState, RandomNumbersAreASequenceOfTheProgramsOwn) {
  expect_private(R"C(
    static char table[64];
    void step(int n) {
      unsigned short x[3] = {1, 2, (unsigned short)n}, y[7] = {1, 2, 3, 4, 5, 6, 7};
      unsigned seed = 5;
      switch (n) {
        case 0: say("%d %ld %g %ld %ld\n", (rand)(), random(), drand48(), lrand48(), mrand48()); break;
        case 1: say("%g %ld %ld %d\n", erand48(x), nrand48(x), jrand48(x), rand_r(&seed)); break;
        case 2: srand(42); say("%d %ld\n", (rand)(), random()); srandom(43); say("%ld\n", random()); break;
        case 3: { char* before = initstate(7, table, sizeof table); say("%ld %ld ", random(), random());
                  char* mine = setstate(before); say("%d %ld ", mine == table, random());
                  setstate(mine); say("%ld\n", random()); break; }
        case 4: srand48(9); say("%g %ld\n", drand48(), lrand48()); break;
        case 5: { unsigned short* old = seed48(x); say("%d %d %d %g ", old[0], old[1], old[2], drand48());
                  lcong48(y); say("%g\n", drand48()); break; }
        case 6: ended(initstate(1, table, 3) == NULL, EINVAL); break;
        default: for (int i = 0; i < 40; ++i) say("%d %ld\n", (rand)(), lrand48());
      }
    })C",
                 9);
}

TEST_F(LibcState, TheEnvironmentIsAsInAProcess) {
  expect_private(R"C(
    extern char** __environ;
    static char mine[] = "OWN=put";
    static const char* show(const char* name) { const char* v = getenv(name); return v ? v : "(null)"; }
    void step(int n) {
      static char* replaced[] = {"ONLY=this", NULL};
      char name[40];
      switch (n) {
        case 0:
          say("%s %s %s\n", show("A"), show("LONG_NAME"), show("NONE"));
          break;
        case 1:
          setenv("A", "changed", 0);
          say("%s ", show("A"));
          setenv("A", "changed", 1);
          say("%s\n", show("A"));
          break;
        case 2:
          putenv(mine);
          mine[4] = 'P';
          say("%s %s\n", show("OWN"), secure_getenv("OWN"));
          break;
        case 3:
          unsetenv("A");
          putenv("LONG_NAME");
          say("%s %s\n", show("A"), show("LONG_NAME"));
          break;
        case 4:
          ended(setenv("", "x", 1), EINVAL);
          ended(setenv("a=b", "x", 1), EINVAL);
          ended(unsetenv(""), EINVAL);
          break;
        case 5:
          for (int i = 0; i < 100; ++i) {
            snprintf(name, sizeof name, "MANY_%d", i);
            setenv(name, name, 1);
          }
          say("%s %s\n", show("MANY_7"), show("MANY_99"));
          {
            int count = 0;
            for (char** e = environ; *e; ++e) ++count;
            say("%d %d\n", count, environ == __environ);
          }
          break;
        case 6:
          say("%s ", strtok(getenv("LIST"), ":"));
          say("%s\n", show("LIST"));
          break;
        case 7:
          clearenv();
          say("%d %s ", environ == NULL, show("OWN"));
          setenv("B", "after", 1);
          say("%s\n", show("B"));
          break;
        case 8:
          environ = replaced;
          say("%s ", show("ONLY"));
          setenv("C", "d", 1);
          say("%s %s %d\n", show("C"), show("ONLY"), environ == replaced);
          break;
      }
    })C",
                 9, {"PATH=/usr/bin:/bin", "A=first", "LONG_NAME=second", "LIST=x:y:z"});
}

TEST_F(LibcState, AStringOfTheEnvironmentThatIsWrittenIntoChangesForOneInstanceAlone) {
  const std::vector<Side> sides = by_turns(R"C(
    void step(int n) {
      if (n == 0) strtok(getenv("LIST"), ":");
      if (n == 1) say("%s", getenv("LIST"));
    })C",
                                           1, {Side{{"LIST=x:y"}}, Side{{"LIST=x:y"}}});
  EXPECT_EQ(sides[0].said, "");
  const auto environment = environment_of({"LIST=x:y"});
  const auto program =
      Program::load(shop.compile("#include <stdlib.h>\n#include <string.h>\nint main(int n, char** a) { char* list = "
                                 "getenv(\"LIST\"); if (n == 2) strtok(list, \":\"); return (int)strlen(list); }",
                                 {"-shared"}, "writes.so"));
  EXPECT_EQ(run(program, {"p", "cut"}, 0, {}, environment).outcome.status, 1);
  EXPECT_EQ(run(program, {"p"}, 1, {}, environment).outcome.status, 3);
}

TEST_F(LibcState, StaticBuffersAreNotSeenByOthers) {
  expect_private(R"C(
    #include <arpa/inet.h>
    #include <grp.h>
    #include <netdb.h>
    #include <netinet/ether.h>
    #include <pwd.h>
    #include <regex.h>
    #include <search.h>
    #include <math.h>
    #include <time.h>
    extern char* re_comp(const char*);
    extern int re_exec(const char*);
    static char sentence[] = "to be or not";
    static char* token;
    static const char* kept[20];
    static int count;
    static void keep(const char* text) { kept[count++] = text ? text : "(null)"; }
    void step(int n) {
      time_t moment = 86400 * 366L * n;
      int point, sign;
      switch (n) {
        case 0:
          token = strtok(sentence, " ");
          say("%s ", token);
          break;
        case 1:
        case 2:
        case 3:
        case 4:
          token = strtok(NULL, " ");
          say("%s ", token ? token : "(end)");
          break;
        case 5:
          keep(strerror(12345));
          keep(strerror(ENOENT));
          keep(strsignal(11));
          break;
        case 6:
          keep(asctime(gmtime(&moment)));
          break;
        case 7: {
          struct in_addr a = {0x0100007f};
          keep(inet_ntoa(a));
          keep(cuserid(NULL));
          break;
        }
        case 8:
          keep(ecvt(3.14159, 4, &point, &sign));
          keep(fcvt(-2.5, 3, &point, &sign));
          keep(qecvt(1e300L, 5, &point, &sign));
          keep(qfcvt(0.125L, 2, &point, &sign));
          say("%d %d ", point, sign);
          break;
        case 9:
          keep(l64a(123456789));
          say("%ld ", a64l(l64a(-5)));
          break;
        case 10: {
          struct passwd* p = getpwuid(0);
          keep(p ? p->pw_name : NULL);
          struct passwd* q = getpwnam("no such user");
          keep(q ? q->pw_name : NULL);
          struct group* g = getgrgid(0);
          keep(g ? g->gr_name : NULL);
          g = getgrnam("root");
          say("%d ", g ? (int)g->gr_gid : -1);
          break;
        }
        case 11: {
          struct hostent* h = gethostbyname("127.0.0.1");
          keep(h ? h->h_name : NULL);
          struct protoent* p = getprotobyname("tcp");
          say("%d ", p ? p->p_proto : -1);
          struct servent* s = getservbyname("http", "tcp");
          say("%d ", s ? ntohs(s->s_port) : -1);
          break;
        }
        case 12: {
          struct ether_addr* e = ether_aton("1:2:3:a:b:c");
          keep(ether_ntoa(e));
          break;
        }
        case 13: {
          ENTRY e = {"key", "value"};
          say("%d ", hcreate(30));
          hsearch(e, ENTER);
          break;
        }
        case 14: {
          ENTRY e = {"key", NULL};
          ENTRY* f = hsearch(e, FIND);
          say("%s ", f ? (char*)f->data : "(none)");
          hdestroy();
          break;
        }
        case 15:
          say("%s ", re_comp("a[0-9]*b") ? "bad" : "good");
          break;
        case 16:
          say("%d %d %d ", re_exec("xxa12bxx"), re_exec("ab"), re_exec("ba"));
          break;
        case 17:
          signgam = 0;
          say("%.6g %d ", lgamma(-0.5), signgam);
          say("%.6g %d ", lgamma(0.5), signgam);
          say("%.5Lg %d ", lgammal(-2.5L), signgam);
          break;
        case 18: {
          struct tm odd = {.tm_year = 99999, .tm_mon = 13, .tm_wday = -1};
          keep(asctime(&odd));
          ended(asctime(NULL) == NULL, EINVAL);
          break;
        }
        case 19:
          say("\n");
          for (int i = 0; i < count; ++i) say("%s|", kept[i]);
          break;
      }
    })C",
                 20);
}

TEST_F(LibcState, EnumerationsOfUsersAnswerInOwnBuffers) {
  const std::vector<Side> sides = by_turns(R"C(
    #include <pwd.h>
    #include <grp.h>
    #include <mntent.h>
    static struct passwd* user;
    void step(int n) {
      if (n == 0) { setpwent(); user = getpwent(); say("%d", user != NULL); }
      if (n == 1) {
        char first[100];
        strncpy(first, user->pw_name, 99);
        say("%d", strcmp(first, user->pw_name) == 0 && user->pw_dir != NULL);
        endpwent();
        FILE* mounts = setmntent("/proc/mounts", "r");
        struct mntent* mount = mounts ? getmntent(mounts) : NULL;
        say("%d", mount != NULL);
        if (mounts) endmntent(mounts);
        FILE* file = fopen("/etc/passwd", "r");
        say("%d", file && fgetpwent(file) != NULL);
        fclose(file);
      }
    })C",
                                           2, {Side{}, Side{}});
  EXPECT_EQ(sides[0].said, "1111");
  EXPECT_EQ(sides[1].said, "1111");
}

TEST_F(LibcState, ConversionsWithoutAStateKeepOneForTheProgram) {
  expect_private(R"C(
    #include <locale.h>
    #include <uchar.h>
    #include <wchar.h>
    void step(int n) {
      wchar_t w[10] = {0};
      char text[40];
      char16_t u = 0;
      const char* euro = "\xe2\x82\xac!";
      switch (n) {
        case 0: say("%s %d ", setlocale(LC_ALL, "C.UTF-8"), (int)MB_CUR_MAX); break;
        case 1: say("%d ", (int)mbrtowc(w, euro, 1, NULL)); break;
        case 2: say("%d ", (int)mbrtowc(w, euro + 1, 1, NULL)); break;
        case 3: say("%d %x ", (int)mbrtowc(w, euro + 2, 1, NULL), (unsigned)w[0]); break;
        case 4: say("%d ", (int)mbrlen(euro, 2, NULL)); break;
        case 5: say("%d ", (int)mbrlen(euro + 2, 1, NULL)); break;
        case 6: say("%d %d %d ", mblen(euro, 4), mbtowc(w, euro, 4), mblen(NULL, 0)); break;
        case 7: say("%d %d ", wctomb(text, 0x20ac), wctomb(NULL, 0)); break;
        case 8: { const char* from = euro; say("%d ", (int)mbsrtowcs(w, &from, 10, NULL)); const wchar_t* back = w; say("%d ", (int)wcsrtombs(text, &back, 40, NULL)); break; }
        case 9: say("%d %x ", (int)mbrtoc16(&u, "\xf0\x9f\x98\x80", 4, NULL), u); break;
        case 10: say("%d %x\n", (int)mbrtoc16(&u, "x", 1, NULL), u); break;
      }
    })C",
                 11);
}

TEST_F(LibcState, TheLocaleIsTheProgramsOwn) {
  const std::string source = R"C(
    #include <langinfo.h>
    #include <libintl.h>
    #include <locale.h>
    static const char* show(const char* text) { return text ? text : "(null)"; }
    void step(int n) {
      static locale_t own;
      switch (n) {
        case 0:
          say("%s %s %d ", setlocale(LC_ALL, NULL), nl_langinfo(CODESET), (int)MB_CUR_MAX);
          break;
        case 1:
          say("%s ", show(setlocale(LC_CTYPE, getenv("WISH"))));
          break;
        case 2:
          say("%s %d %s ", nl_langinfo(CODESET), (int)MB_CUR_MAX, setlocale(LC_ALL, NULL));
          break;
        case 3:
          say("%s %s ", show(setlocale(LC_ALL, "no such locale")), show(setlocale(99, "C")));
          break;
        case 4:
          say("%s ", show(setlocale(LC_ALL, "")));
          break;
        case 5:
          say("%s %s ", nl_langinfo(CODESET), setlocale(LC_MESSAGES, NULL));
          break;
        case 6: {
          char* all = strdup(setlocale(LC_ALL, NULL));
          setlocale(LC_ALL, "POSIX");
          say("%s ", setlocale(LC_ALL, NULL));
          say("%s ", show(setlocale(LC_ALL, all)));
          free(all);
          break;
        }
        case 7:
          say("%s %s ", show(setlocale(LC_ALL, "LC_CTYPE=C.UTF-8;LC_TIME=C")), localeconv()->decimal_point);
          break;
        case 8:
          own = newlocale(LC_ALL_MASK, "C", NULL);
          say("%d ", uselocale(own) == LC_GLOBAL_LOCALE);
          break;
        case 9:
          say("%d %s ", uselocale(NULL) == own, nl_langinfo(CODESET));
          break;
        case 10:
          say("%d %s ", uselocale(LC_GLOBAL_LOCALE) == own, nl_langinfo(CODESET));
          freelocale(own);
          break;
        case 11: {
          locale_t copy = duplocale(LC_GLOBAL_LOCALE);
          say("%s ", nl_langinfo_l(CODESET, copy));
          freelocale(copy);
          copy = newlocale(LC_ALL_MASK, "", NULL);
          say("%s ", nl_langinfo_l(CODESET, copy));
          freelocale(copy);
          break;
        }
        case 12:
          say("%s ", textdomain(NULL));
          textdomain(getenv("WISH"));
          say("%s %s\n", textdomain(NULL), gettext("text"));
          break;
      }
    })C";
  const std::vector<std::string> utf8{"WISH=C.UTF-8", "LC_CTYPE=C.UTF-8", "LANG=C"};
  const std::vector<std::string> plain{"WISH=C", "LC_ALL=C"};
  const std::vector<Side> sides = by_turns(source, 13, {Side{utf8}, Side{plain}, Side{utf8}});
  EXPECT_EQ(sides[0].said, alone(source, 13, utf8));
  EXPECT_EQ(sides[1].said, alone(source, 13, plain));
  EXPECT_EQ(sides[2].said, sides[0].said);
  EXPECT_STREQ(setlocale(LC_ALL, nullptr), "C");
  EXPECT_EQ(uselocale(nullptr), LC_GLOBAL_LOCALE) << "the thread is the process's again";
}

// The thread does its part of each step while main waits. Both say whether they have chosen a locale, and which they
// use.
TEST_F(LibcState, AThreadHasTheLocaleThatItChooses) {
  const std::string source = R"C(
    #include <langinfo.h>
    #include <locale.h>
    #include <pthread.h>
    static pthread_barrier_t turn;
    static pthread_t id;
    static char of_thread[100];
    static void show(char* text) {
      snprintf(text, sizeof of_thread, "%s %s", uselocale(NULL) == LC_GLOBAL_LOCALE ? "global" : "chosen",
              strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? "utf8" : "plain");
    }
    static void* work(void* unused) {
      locale_t own = NULL;
      for (int n = 0; n < 7; ++n) {
        pthread_barrier_wait(&turn);
        switch (n) {
          case 1: own = newlocale(LC_ALL_MASK, "C.UTF-8", NULL); uselocale(own); break;
          case 2: uselocale(LC_GLOBAL_LOCALE); freelocale(own); break;
          case 3: own = newlocale(LC_ALL_MASK, "C", NULL); uselocale(own); break;
          case 4: uselocale(LC_GLOBAL_LOCALE); freelocale(own); break;
          case 6: setlocale(LC_ALL, "C.UTF-8"); break;
        }
        show(of_thread);
        pthread_barrier_wait(&turn);
      }
      return NULL;
    }
    void step(int n) {
      static locale_t own;
      char of_main[100];
      switch (n) {
        case 0: pthread_barrier_init(&turn, NULL, 2); pthread_create(&id, NULL, work, NULL); break;
        case 2: setlocale(LC_ALL, "C.UTF-8"); break;
        case 4: own = newlocale(LC_ALL_MASK, "C", NULL); uselocale(own); break;
        case 5: uselocale(LC_GLOBAL_LOCALE); freelocale(own); setlocale(LC_ALL, "C"); break;
      }
      pthread_barrier_wait(&turn);
      pthread_barrier_wait(&turn);
      show(of_main);
      say("%s, %s\n", of_main, of_thread);
      if (n == 6) pthread_join(id, NULL);
    })C";
  const std::string expected =
      "global plain, global plain\n"
      "global plain, chosen utf8\n"
      "global utf8, global utf8\n"
      "global utf8, chosen plain\n"
      "chosen plain, global utf8\n"
      "global plain, global plain\n"
      "global utf8, global utf8\n";
  for (const Side& side : by_turns(source, 7, {Side{}, Side{}})) EXPECT_EQ(side.said, expected);
}

TEST_F(LibcState, AThreadBeginsWithTheGlobalLocale) {
  const std::string source = R"C(
    #include <langinfo.h>
    #include <locale.h>
    #include <pthread.h>
    #include <sys/stat.h>
    static void show(void) { say("%s ", strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? "utf8" : "plain"); }
    static void* work(void* chosen) {
      show();
      uselocale((locale_t)chosen);
      umask(022);
      show();
      return NULL;
    }
    void step(int n) {
      pthread_t id;
      const locale_t utf8 = newlocale(LC_ALL_MASK, "C.UTF-8", NULL), plain = newlocale(LC_ALL_MASK, "C", NULL);
      if (n == 1) setlocale(LC_ALL, "C.UTF-8");
      uselocale(n == 0 ? utf8 : plain);
      pthread_create(&id, NULL, work, n == 0 ? plain : utf8);
      pthread_join(id, NULL);
      show();
      uselocale(LC_GLOBAL_LOCALE);
      freelocale(utf8);
      freelocale(plain);
    })C";
  for (const Side& side : by_turns(source, 2, {Side{}, Side{}}))
    EXPECT_EQ(side.said, "plain plain utf8 utf8 utf8 plain ");
}

TEST_F(LibcState, ATimeZoneStaysAsItWasSeenLast) {
  const std::string source = R"C(
    #include <time.h>
    static void show(void) { say("%s %s %ld %d, ", tzname[0], tzname[1], timezone, daylight); }
    void step(int n) {
      const time_t summers[] = {0, 1300000000};
      struct tm t;
      char text[20];
      switch (n) {
        case 0: tzset(); show(); break;
        case 1: case 5: t = *localtime(&summers[n / 5]); show(); break;
        case 2: tzset(); show(); break;
        case 3: strftime(text, sizeof text, "%Z", &t); show(); break;
        case 4: setenv("TZ", "UTC0", 1); tzset(); show(); setenv("TZ", getenv("ZONE"), 1); tzset(); show(); break;
        case 6: tzset(); show(); break;
      }
    })C";
  std::vector<Side> sides;
  for (const std::string zone : {"Europe/London", "Asia/Tokyo", "Europe/Moscow", "EST5EDT,M3.2.0,M11.1.0"})
    sides.push_back(Side{{"TZ=" + zone, "ZONE=" + zone}});
  sides.push_back(sides.front());
  for (const Side& side : by_turns(source, 7, sides)) EXPECT_EQ(side.said, alone(source, 7, side.environment));
}

TEST_F(LibcState, WhetherItMayBeCancelledIsTheProgramsOwn) {
  expect_private(R"C(
    #include <pthread.h>
    void step(int n) {
      int state, type;
      pthread_setcancelstate(n % 2 == 0 ? PTHREAD_CANCEL_DISABLE : PTHREAD_CANCEL_ENABLE, &state);
      pthread_setcanceltype(n % 2 == 0 ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, &type);
      say("%d %d %d %d ", state, type, pthread_setcancelstate(77, &state), pthread_setcanceltype(77, &type));
    })C",
                 3);
}

TEST_F(LibcState, EachProgramHasTheTimeZoneOfItsEnvironment) {
  const std::string source = R"C(
    #include <time.h>
    void step(int n) {
      time_t moment = 1700000000 + 15552000L * n;
      struct tm t;
      char text[100];
      switch (n) {
        case 0: say("%s %s %ld %d ", tzname[0], tzname[1], timezone, daylight); break;
        case 1: tzset(); say("%s %s %ld %d ", tzname[0], tzname[1], timezone, daylight); break;
        case 2: localtime_r(&moment, &t); strftime(text, 100, "%F %T %Z %z", &t); say("%s %d ", text, t.tm_isdst); break;
        case 3: say("%s", ctime(&moment)); break;
        case 4: t = *localtime(&moment); t.tm_isdst = -1; t.tm_mon += 5; say("%ld %s ", (long)mktime(&t), t.tm_zone); break;
        case 5: say("%s", ctime_r(&moment, text)); break;
        case 6: memset(&t, 0, sizeof t); strptime("1700000000", "%s", &t); say("%d:%d ", t.tm_hour, t.tm_min); break;
        case 7: setenv("TZ", "ABC-5:30", 1); tzset(); say("%s %ld %s", tzname[0], timezone, ctime(&moment)); break;
        case 8: unsetenv("TZ"); say("%s", ctime(&moment)); break;
      }
    })C";
  const std::vector<std::vector<std::string>> zones{
      {"TZ=NZST-12NZDT,M9.5.0,M4.1.0/3"}, {"TZ=EST5EDT"}, {}, {"TZ="}, {"TZ=nonsense"}};
  std::vector<Side> sides;
  for (const auto& zone : zones) sides.push_back(Side{zone});
  const std::string before = std::getenv("TZ") != nullptr ? std::getenv("TZ") : "(unset)";
  sides = by_turns(source, 9, sides);
  for (std::size_t i = 0; i < zones.size(); ++i) EXPECT_EQ(sides[i].said, alone(source, 9, zones[i])) << i;
  EXPECT_EQ(std::getenv("TZ") != nullptr ? std::getenv("TZ") : "(unset)", before);
}

TEST_F(LibcState, ThreadsOfAProgramMayUseItsStateAtOnce) {
  const auto program = Program::load(shop.compile(R"C(
    #include <pthread.h>
    #include <stdlib.h>
    #include <string.h>
    #include <time.h>
    static pthread_barrier_t together;
    static char* found[4];
    static long drawn[4];
    static void* work(void* number) {
      long mine = (long)number, sum = 0;
      struct tm t;
      time_t zero = 0;
      pthread_barrier_wait(&together);
      found[mine] = getenv("LIST");
      for (int i = 0; i < 1000; ++i) sum += random() & 0xff;
      localtime_r(&zero, &t);
      drawn[mine] = sum + t.tm_hour;
      return NULL;
    }
    int main(void) {
      pthread_t threads[4];
      long all = 0, expected = 0;
      pthread_barrier_init(&together, NULL, 4);
      for (long i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, (void*)i);
      for (int i = 0; i < 4; ++i) { pthread_join(threads[i], NULL); all += drawn[i]; }
      srandom(1);
      for (int i = 0; i < 4000; ++i) expected += random() & 0xff;
      for (int i = 1; i < 4; ++i) if (found[i] != found[0] || strcmp(found[i], "x:y") != 0) return 1;
      return all == expected ? 0 : 2;
    })C",
                                                  {"-shared", "-D_GNU_SOURCE", "-pthread", "-w"}, "threads.so"));
  const auto environment = environment_of({"LIST=x:y", "TZ=UTC0"});
  for (const std::uint32_t cell : {0U, 1U}) EXPECT_EQ(run(program, {"p"}, cell, {}, environment).outcome.status, 0);
}

TEST_F(LibcState, OptionsAreScannedIndependently) {
  expect_private(R"C(
    #include <getopt.h>
    void step(int n) {
      static char* argv[] = {"prog", "operand", "-ab", "--long=1", "-c", "value", "last", NULL};
      static const struct option options[] = {{"long", 1, NULL, 'l'}, {NULL, 0, NULL, 0}};
      opterr = 0;
      int c = getopt_long(7, argv, "abc:", options, NULL);
      say("%d %d %s %c\n", c, optind, optarg ? optarg : "(null)",
                 optopt ? optopt : '0');
      if (c == -1) {
    for (int i = 0; i < 7; ++i) say("%s ", argv[i]);
      }
    })C",
                 6);
}

// Both walk at once; each sees all of the list.
TEST_F(LibcState, AWalkThroughTheUsersIsTheProgramsOwn) {
  expect_private(R"C(
    #include <grp.h>
    #include <netdb.h>
    #include <pwd.h>
    void step(int n) {
      struct passwd* user = getpwent();
      struct passwd into, *found = NULL;
      char text[4096];
      struct group* group = getgrent();
      struct protoent* protocol = getprotoent();
      say("%s %s %s ", user ? user->pw_name : "-", group ? group->gr_name : "-", protocol ? protocol->p_name : "-");
      if (n == 2) { getpwent_r(&into, text, sizeof text, &found); say("%s ", found ? into.pw_name : "-"); }
      if (n == 4) { setpwent(); setprotoent(1); endgrent(); }
    })C",
                 7);
}

TEST_F(LibcState, SoAreThoseThroughListsThatHaveNoReentrantForm) {
  expect_private(R"C(
    #include <aliases.h>
    #include <fstab.h>
    #include <unistd.h>
    #include <utmp.h>
    #include <utmpx.h>
    void step(int n) {
      const char* shell = getusershell();
      struct fstab* system = getfsent();
      struct aliasent* alias = getaliasent();
      struct utmp* login = getutent();
      struct utmpx* loginx = getutxent();
      say("%s %s %s %d %d ", shell ? shell : "-", system ? system->fs_file : "-", alias ? alias->alias_name : "-",
          login ? login->ut_type : -1, loginx ? loginx->ut_type : -1);
      if (n == 3) { setusershell(); endfsent(); setaliasent(); setutent(); setutxent(); }
    })C",
                 6);
}

// Catalogues of one domain in two folders.
TEST_F(LibcState, MessagesComeFromTheProgramsOwnFolder) {
  const auto catalogue = [this](const std::string& folder, const std::string& text) {
    const std::filesystem::path place = std::filesystem::path(shop.folder()) / folder / "C.UTF-8" / "LC_MESSAGES";
    std::filesystem::create_directories(place);
    const std::string header = "Content-Type: text/plain; charset=UTF-8\n";
    const auto length = [](const std::string& of) { return static_cast<std::uint32_t>(of.size()); };
    const std::uint32_t texts = 44 + 16;
    const std::array<std::uint32_t, 15> words{0x950412de,
                                              0,
                                              2,
                                              28,
                                              44,
                                              0,
                                              0,  // no hash table
                                              0,
                                              texts,
                                              4,
                                              texts + 1,  // "", "word"
                                              length(header),
                                              texts + 6,
                                              length(text),
                                              texts + 7 + length(header)};
    std::ofstream file(place / "tool.mo", std::ios::binary);
    file.write(reinterpret_cast<const char*>(words.data()), sizeof words);
    file.write("\0word\0", 6);
    file << header << '\0' << text << '\0';
  };
  catalogue("a", "Wort");
  catalogue("b", "mot");
  const std::string source = R"C(
    #include <libintl.h>
    #include <locale.h>
    void step(int n) {
      const char* folder = getenv("FOLDER");
      if (n == 0) say("%d ", setlocale(LC_ALL, "C.UTF-8") != NULL);
      if (n == 1 && folder) say("%d ", strcmp(bindtextdomain("tool", folder), folder));
      if (n == 2) { textdomain("tool"); say("%s %s ", gettext("word"), dgettext("tool", "other")); }
      if (n == 3) say("%s ", bindtextdomain("tool", NULL));
    })C";
  const std::vector<std::string> a{"LANGUAGE=", "FOLDER=" + shop.folder() + "/a"};
  const std::vector<std::string> b{"LANGUAGE=", "FOLDER=" + shop.folder() + "/b"};
  const std::vector<Side> sides = by_turns(source, 4, {Side{a}, Side{b}, Side{{"LANGUAGE="}}, Side{a}});
  EXPECT_EQ(sides[0].said, alone(source, 4, a));
  EXPECT_EQ(sides[0].said, "1 0 Wort other " + shop.folder() + "/a ");
  EXPECT_EQ(sides[1].said, alone(source, 4, b));
  EXPECT_EQ(sides[2].said, alone(source, 4, {"LANGUAGE="}));
  EXPECT_EQ(sides[3].said, sides[0].said);
}

}  // namespace
}  // namespace aplib::loader::test
