C     SPDX-License-Identifier: MIT
C     Heat in a plate, the way programs of 1980 were written: everything
C     in COMMON, constants in BLOCK DATA, memory of its own in SAVE, one
C     array seen as another by EQUIVALENCE. It reads its case from unit
C     5, writes a report to unit 6 and its history and result to files.
C     Run 32 times in one process, each run must see only its own.
      PROGRAM PLATE
      INTEGER NMAX
      PARAMETER (NMAX = 64)
      DOUBLE PRECISION T, Q
      INTEGER N, NSTEP, KASE
      COMMON /FIELD/ T(NMAX, NMAX), Q(NMAX, NMAX)
      COMMON /SIZES/ N, NSTEP, KASE
      DOUBLE PRECISION ALPHA, DT, LIMIT
      COMMON /PHYS/ ALPHA, DT, LIMIT
      CHARACTER*24 TITLE
      COMMON /NAMES/ TITLE
C     Unnamed common, seen here as one array and below as two.
      DOUBLE PRECISION WORK
      COMMON WORK(2 * NMAX)
      INTEGER I, J, STEP, HOT
      DOUBLE PRECISION CHANGE, SWEEP, TOTAL
      CHARACTER*12 LABEL
      DOUBLE PRECISION FLAT(NMAX * NMAX)
      EQUIVALENCE (FLAT(1), Q(1, 1))
      NAMELIST /CASE/ N, NSTEP, KASE, ALPHA, LIMIT, TITLE
      INTEGER COUNTS
      EXTERNAL SWEEP, COUNTS

      READ (5, NML=CASE)
      READ (5, *, END=900, ERR=910) HOT
      DO 10 I = 1, HOT
        READ (5, 1000, END=900) J, LABEL
        IF (J .LT. 1 .OR. J .GT. NMAX * NMAX) GO TO 910
        FLAT(J) = DBLE(I) + 0.25D0
        WRITE (6, 1010) I, J, LABEL
 10   CONTINUE
      DT = 0.2D0 / ALPHA
      OPEN (10, FILE='history.txt', STATUS='UNKNOWN')
      OPEN (11, STATUS='SCRATCH', FORM='UNFORMATTED')
      WRITE (6, 1020) TITLE, N, KASE, ALPHA
      DO 20 STEP = 1, NSTEP
        CHANGE = SWEEP(STEP)
        WRITE (11) STEP, CHANGE, (WORK(I), I = 1, N)
        IF (MOD(STEP, 10) .EQ. 0) WRITE (10, 1030) STEP, CHANGE
        IF (CHANGE .LT. LIMIT) GO TO 30
 20   CONTINUE
 30   CONTINUE
      REWIND (11)
      TOTAL = 0
      DO 40 I = 1, MIN(STEP, NSTEP)
        READ (11) J, CHANGE, (WORK(NMAX + J), J = 1, N)
        TOTAL = TOTAL + WORK(NMAX + N) * CHANGE
 40   CONTINUE
      CLOSE (10)
      WRITE (6, 1040) MIN(STEP, NSTEP), CHANGE, TOTAL, COUNTS(0)
      CALL RESULT(TOTAL)
      CALL REPORT
      IF (MOD(KASE, 4) .EQ. 1) STOP 3
      IF (MOD(KASE, 4) .EQ. 2) STOP 'stopped by the case'
      IF (MOD(KASE, 8) .EQ. 7) CALL EXIT(9)
      GO TO 999
 900  WRITE (0, *) 'plate: the input ends too early'
      STOP 1
 910  WRITE (6, *) 'plate: a source outside the plate'
      STOP 2
 999  CONTINUE
 1000 FORMAT (I5, 1X, A12)
 1010 FORMAT (' SOURCE', I4, ' AT', I6, ': ', A)
 1020 FORMAT (1X, A24, ' N =', I4, ' CASE', I4, 1PE12.4)
 1030 FORMAT (I6, 1PD24.15)
 1040 FORMAT (' STEPS', I6, ' CHANGE', 1PD22.14, ' TOTAL', D22.14, I8)
      END

      BLOCK DATA START
      INTEGER NMAX
      PARAMETER (NMAX = 64)
      DOUBLE PRECISION T, Q, ALPHA, DT, LIMIT
      INTEGER N, NSTEP, KASE
      COMMON /FIELD/ T(NMAX, NMAX), Q(NMAX, NMAX)
      COMMON /SIZES/ N, NSTEP, KASE
      COMMON /PHYS/ ALPHA, DT, LIMIT
      CHARACTER*24 TITLE
      COMMON /NAMES/ TITLE
      DATA N, NSTEP, KASE /16, 100, -1/, ALPHA, LIMIT /1.0D0, 1.0D-9/
      DATA TITLE /'NOT NAMED'/
      END

C     One step over the plate; the largest change. Remembers the largest
C     of all, and how often it was called.
      DOUBLE PRECISION FUNCTION SWEEP(STEP)
      INTEGER STEP
      INTEGER NMAX
      PARAMETER (NMAX = 64)
      DOUBLE PRECISION T, Q, ALPHA, DT, LIMIT
      INTEGER N, NSTEP, KASE
      COMMON /FIELD/ T(NMAX, NMAX), Q(NMAX, NMAX)
      COMMON /SIZES/ N, NSTEP, KASE
      COMMON /PHYS/ ALPHA, DT, LIMIT
      DOUBLE PRECISION ROW, LAST
      COMMON ROW(NMAX), LAST(NMAX)
      DOUBLE PRECISION NEW(NMAX, NMAX), WORST
      SAVE NEW, WORST
      DATA WORST /0.0D0/
      INTEGER I, J, COUNTS, IGNORE
      SWEEP = 0
      DO 20 J = 2, N - 1
        DO 10 I = 2, N - 1
          NEW(I, J) = T(I, J) + DT * (Q(I, J) + ALPHA * (T(I - 1, J)
     &      + T(I + 1, J) + T(I, J - 1) + T(I, J + 1) - 4 * T(I, J)))
 10     CONTINUE
 20   CONTINUE
      DO 40 J = 2, N - 1
        ROW(J) = 0
        DO 30 I = 2, N - 1
          SWEEP = MAX(SWEEP, ABS(NEW(I, J) - T(I, J)))
          T(I, J) = NEW(I, J)
          ROW(J) = ROW(J) + T(I, J)
 30     CONTINUE
 40   CONTINUE
      ROW(1) = STEP
      ROW(N) = LAST(N)
      WORST = MAX(WORST, SWEEP)
      LAST(N) = WORST
      IGNORE = COUNTS(1)
      END

C     Two entries to one memory.
      INTEGER FUNCTION COUNTS(MORE)
      INTEGER MORE, PEAK, CALLS, SEEN
      SAVE
      DATA CALLS, SEEN /0, 0/
      CALLS = CALLS + MORE
      COUNTS = CALLS
      RETURN
      ENTRY PEAK(MORE)
      SEEN = MAX(SEEN, MORE)
      PEAK = SEEN
      END

C     The plate to a direct-access file, and a picture to unit 6.
      SUBROUTINE RESULT(TOTAL)
      DOUBLE PRECISION TOTAL
      INTEGER NMAX
      PARAMETER (NMAX = 64)
      DOUBLE PRECISION T, Q
      INTEGER N, NSTEP, KASE
      COMMON /FIELD/ T(NMAX, NMAX), Q(NMAX, NMAX)
      COMMON /SIZES/ N, NSTEP, KASE
      INTEGER I, J, K, PEAK, IGNORE
      CHARACTER*64 LINE
      CHARACTER*10 SCALE
      SAVE SCALE
      DATA SCALE /' .:-=+*#%@'/
      OPEN (12, FILE='plate.dat', ACCESS='DIRECT', RECL=8 * NMAX)
      DO 10 J = N, 1, -1
        WRITE (12, REC=J) (T(I, J), I = 1, NMAX)
 10   CONTINUE
      CLOSE (12)
      DO 30 J = 1, N, MAX(1, N / 16)
        LINE = ' '
        DO 20 I = 1, N
          K = MIN(9, INT(ABS(T(I, J)) * 4))
          IGNORE = PEAK(K)
          LINE(I:I) = SCALE(K + 1:K + 1)
 20     CONTINUE
        WRITE (6, '(1X, A)') LINE(1:N)
 30   CONTINUE
      WRITE (LINE, '(A, I2, A, F12.6)') 'PEAK', PEAK(0), ' OF', TOTAL
      WRITE (6, '(1X, A)') LINE(1:24)
      END
